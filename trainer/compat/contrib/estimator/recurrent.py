"""RNNClassifier and RNNEstimator with the arguments that they had in tf.contrib.estimator."""

from collections.abc import Sequence
from typing import Any

from tpuserve.errors import InvalidSetting
from trainer.compat.imports.canned_internals import rnn

_CELL_TYPES = {"basic_rnn": "simple_rnn", "simple_rnn": "simple_rnn", "lstm": "lstm", "gru": "gru"}


def _cell_options(
    num_units: Sequence[int] | int | None, cell_type: Any, rnn_cell_fn: Any
) -> dict[str, Any]:
    """Return the arguments of today's classes that describe the cells."""
    if rnn_cell_fn is not None:
        if num_units is not None:
            raise InvalidSetting("num_units and rnn_cell_fn are both given. Give one of them.")
        return {"rnn_cell_fn": rnn_cell_fn}
    if isinstance(cell_type, str) and cell_type not in _CELL_TYPES:
        raise InvalidSetting(
            f"cell_type is {cell_type!r}. Give one of {', '.join(sorted(_CELL_TYPES))}, or the "
            f"class of a Keras cell."
        )
    units = [num_units] if isinstance(num_units, int) else num_units
    return {"units": units, "cell_type": _CELL_TYPES.get(cell_type, cell_type)}


def RNNClassifier(
    sequence_feature_columns: Sequence[Any],
    context_feature_columns: Sequence[Any] | None = None,
    num_units: Sequence[int] | int | None = None,
    cell_type: Any = "basic_rnn",
    rnn_cell_fn: Any = None,
    **options: Any,
) -> Any:
    """Return a tf.estimator.experimental.RNNClassifier.

    Args:
      num_units: the units of each layer.
      cell_type: "basic_rnn", "lstm", "gru", or the class of a Keras cell.
      rnn_cell_fn: returns a Keras cell, in place of num_units and cell_type.
      options: the other arguments of tf.estimator.experimental.RNNClassifier.
    """
    return rnn.RNNClassifier(
        sequence_feature_columns,
        context_feature_columns,
        **_cell_options(num_units, cell_type, rnn_cell_fn),
        **options,
    )


def RNNEstimator(
    head: Any,
    sequence_feature_columns: Sequence[Any],
    context_feature_columns: Sequence[Any] | None = None,
    num_units: Sequence[int] | int | None = None,
    cell_type: Any = "basic_rnn",
    rnn_cell_fn: Any = None,
    **options: Any,
) -> Any:
    """Return a tf.estimator.experimental.RNNEstimator with a head of tf.estimator.

    The other arguments are those of `RNNClassifier`.
    """
    return rnn.RNNEstimator(
        head,
        sequence_feature_columns,
        context_feature_columns,
        **_cell_options(num_units, cell_type, rnn_cell_fn),
        **options,
    )
