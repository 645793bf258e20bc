"""RNNClassifier and RNNEstimator with the arguments that they had in tf.contrib.estimator."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib.estimator.heads import REDUCTIONS
from trainer.compat.imports.canned_internals import head as canned_head
from trainer.compat.imports.canned_internals import rnn

_CELL_TYPES = {"basic_rnn": "simple_rnn", "simple_rnn": "simple_rnn", "lstm": "lstm", "gru": "gru"}


class _HeadOfVersion1:
    """Gives a head of TensorFlow 1 the arguments by which an RNNEstimator calls one."""

    def __init__(self, head: Any) -> None:
        self._head = head
        self.logits_dimension = head.logits_dimension

    def create_estimator_spec(
        self, optimizer: Any, update_ops: Sequence[Any], trainable_variables: Any, **arguments: Any
    ) -> Any:
        def minimize(loss: Any) -> Any:
            return tf.group(optimizer.get_updates(loss, trainable_variables)[0], *update_ops)

        return self._head.create_estimator_spec(**arguments, train_op_fn=minimize)


def _translate(
    num_units: Sequence[int] | int | None,
    cell_type: Any,
    rnn_cell_fn: Callable[..., Any] | None,
    options: dict[str, Any],
) -> dict[str, Any]:
    """Return the arguments of today's classes."""
    reduction = options.get("loss_reduction")
    if reduction in REDUCTIONS:
        options = {**options, "loss_reduction": REDUCTIONS[reduction]}
    if rnn_cell_fn is not None:
        if num_units is not None:
            raise InvalidSetting("num_units and rnn_cell_fn are both given. Give one of them.")
        return {"rnn_cell_fn": rnn_cell_fn, **options}
    if isinstance(cell_type, str) and cell_type not in _CELL_TYPES:
        raise InvalidSetting(
            f"cell_type is {cell_type!r}. Give one of {', '.join(sorted(_CELL_TYPES))}, or the "
            f"class of a Keras cell."
        )
    units = [num_units] if isinstance(num_units, int) else num_units
    is_name = isinstance(cell_type, str)
    return {
        "units": units,
        "cell_type": _CELL_TYPES[cell_type] if is_name else cell_type,
        **options,
    }


def RNNClassifier(
    sequence_feature_columns: Sequence[Any],
    context_feature_columns: Sequence[Any] | None = None,
    num_units: Sequence[int] | int | None = None,
    cell_type: Any = "basic_rnn",
    rnn_cell_fn: Callable[[], Any] | None = None,
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
        **_translate(num_units, cell_type, rnn_cell_fn, options),
    )


def RNNEstimator(
    head: Any,
    sequence_feature_columns: Sequence[Any],
    context_feature_columns: Sequence[Any] | None = None,
    num_units: Sequence[int] | int | None = None,
    cell_type: Any = "basic_rnn",
    rnn_cell_fn: Callable[[], Any] | None = None,
    **options: Any,
) -> Any:
    """Return a tf.estimator.experimental.RNNEstimator.

    The other arguments are those of `RNNClassifier`.
    """
    return rnn.RNNEstimator(
        _HeadOfVersion1(head) if isinstance(head, canned_head._Head) else head,
        sequence_feature_columns,
        context_feature_columns,
        **_translate(num_units, cell_type, rnn_cell_fn, options),
    )
