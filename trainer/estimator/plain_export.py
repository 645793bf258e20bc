"""Exports the model of any Estimator, and not only of a TPUEstimator, for both CPU and TPU."""

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

    Use this function for an Estimator whose method export_saved_model writes only {serve}. In the
    TPU metagraph the whole model runs on the TPU, as with ExportSavedModelApiVersion.V1.

    Args:
      estimator: a trained `trainer.Estimator`, usually not a TPUEstimator.
      export_dir_base: the directory that receives the version directory.
      serving_input_receiver_fn: builds the placeholders and the features, and returns a
        ServingInputReceiver.
      assets_extra: path below assets.extra/ → path of the file to copy there.
      as_text: whether to write saved_model.pbtxt instead of saved_model.pb.
      checkpoint_path: the checkpoint to export; None takes the newest checkpoint.
      warm_up: which warm-up requests to write into assets.extra/; True writes one request per
        signature and batch size.

    Returns:
      The path of the new version directory as bytes.

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
