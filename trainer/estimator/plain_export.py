"""Both metagraphs of a plain Estimator."""

from collections.abc import Callable, Mapping
from typing import Any

from tpuserve.errors import InvalidType
from tpuserve.export import WarmUp
from tpuserve.export.warm_up import normalize_warm_up
from trainer.estimator.estimator import Estimator
from trainer.exporting import saved_model
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
    """Writes a SavedModel of an Estimator with a TPU metagraph beside the other.

    The whole model is placed on the TPU, as in an export of version V1 by a TPUEstimator.

    Args:
      estimator: a trained one.
      export_dir_base, serving_input_receiver_fn, assets_extra, as_text, checkpoint_path, warm_up:
        see `Estimator.export_saved_model`.

    Returns:
      The version directory's path as bytes.

    Raises:
      InvalidType: it is no Estimator.
      CheckpointNotFound, ExportError: see there.
    """
    if not isinstance(estimator, Estimator):
        raise InvalidType(f"estimator is {estimator!r}. Give a trainer.Estimator.")
    directory = saved_model.write_saved_model(
        estimator._program,
        export_dir_base,
        {ModeKeys.PREDICT: serving_input_receiver_fn},
        to_tpu=True,
        assets_extra=assets_extra,
        as_text=as_text,
        checkpoint_path=checkpoint_path,
        warm_up=normalize_warm_up(warm_up),
    )
    return directory.encode()
