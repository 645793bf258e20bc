"""Exports an Estimator that is not a TPUEstimator, for CPU and TPU."""

from collections.abc import Callable, Mapping
from typing import Any

from tpuserve.errors import InvalidType
from tpuserve.export import WarmUp
from trainer.estimator.estimator import Estimator
from trainer.exporting.strategies import ExportTargets
from trainer.model.spec import ModeKeys


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

    The function is for estimators whose own export writes only {serve}. The whole model is placed
    on the TPU, as with ExportSavedModelApiVersion.V1.

    Args:
      estimator: a trained `trainer.Estimator`, usually not a TPUEstimator.
      export_dir_base: see `Estimator.export_saved_model`.
      serving_input_receiver_fn: see `Estimator.export_saved_model`.
      assets_extra: see `Estimator.export_saved_model`.
      as_text: see `Estimator.export_saved_model`.
      checkpoint_path: see `Estimator.export_saved_model`.
      warm_up: see `Estimator.export_saved_model`.

    Returns:
      The path of the version directory as bytes.

    Raises:
      InvalidType: estimator is not a `trainer.Estimator`.
      CheckpointNotFound: there is no checkpoint to export.
      ExportError: the model cannot be exported with these settings.
      InvalidSetting: the receiver function is missing or returns a wrong type.
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
