"""Exports the model of any Estimator, and not only of a TPUEstimator, for both CPU and TPU."""

from collections.abc import Callable, Mapping
from typing import Any

from tpuserve.errors import InvalidType
from tpuserve.export import WarmUp
from trainer.estimator.estimator import Estimator
from trainer.exporting.strategies import ExportTargets
from trainer.model.spec import ModeKeys


def check_is_estimator(estimator: Any) -> None:
    """Check that an argument is an estimator."""
    if not isinstance(estimator, Estimator):
        raise InvalidType(
            f"estimator must have type trainer.Estimator or trainer.TPUEstimator; found "
            f"{type(estimator).__name__}."
        )


def export_estimator_savedmodel(
    estimator: Estimator,
    export_dir_base: str,
    serving_input_receiver_fn: Callable[[], Any],
    assets_extra: Mapping[str, str] | None = None,
    as_text: bool = False,
    checkpoint_path: str | None = None,
    *,
    warm_up: WarmUp | bool | None = None,
) -> bytes:
    """Write a SavedModel with the metagraphs {serve} and {serve, tpu}, as TPUEstimator does.

    Use this function for an Estimator whose method export_saved_model writes only {serve}.

    Args:
      assets_extra: path below assets.extra/ → path of the file to copy there.
    """
    if not isinstance(estimator, Estimator):
        raise InvalidType(f"estimator is {estimator!r}. Give a trainer.Estimator.")
    return estimator._export(
        export_dir_base,
        {ModeKeys.PREDICT: serving_input_receiver_fn},
        assets_extra,
        as_text,
        checkpoint_path,
        warm_up,
        targets=ExportTargets(to_cpu=True, to_tpu=True),
    )
