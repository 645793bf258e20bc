"""tf.keras.estimator: an Estimator of a Keras model.

tf_keras looks for it in tensorflow_estimator, as the module keras_lib.
"""

from collections.abc import Mapping
from typing import Any

import trainer
from tpuserve.errors import InvalidSetting

__all__ = ["model_to_estimator"]

_FORMATS = (None, "checkpoint", "saver")


def model_to_estimator(
    keras_model: Any = None,
    keras_model_path: str | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    model_dir: str | None = None,
    config: Any = None,
    checkpoint_format: str | None = None,
    use_v2_estimator: bool = False,
    metric_names_map: Mapping[str, str] | None = None,
    export_outputs: Mapping[str, Any] | None = None,
) -> trainer.Estimator:
    """An Estimator that does what a compiled Keras model does, on the CPU.

    Args:
      keras_model, keras_model_path, custom_objects, model_dir, config, metric_names_map,
        export_outputs: see `trainer.model_to_tpu_estimator`, which makes the same of them for a
        TPU.
      checkpoint_format: "saver" or "checkpoint", which say by what names the original stored
        values. Here they have those of the variables, whichever is given.
      use_v2_estimator: taken for compatibility; there is one Estimator.

    Raises:
      InvalidSetting: there is no such format, or see `trainer.model_to_tpu_estimator`.
    """
    if checkpoint_format not in _FORMATS:
        raise InvalidSetting(
            f"checkpoint_format is {checkpoint_format!r}. Give 'checkpoint' or 'saver'."
        )
    config = trainer.RunConfig() if config is None else config
    if isinstance(config, trainer.RunConfig) and not config.has_tpu_config:
        # Hooks of a plain Estimator are called after each step.
        config = config.replace(tpu_config=trainer.TPUConfig(iterations_per_loop=1))
    estimator: trainer.Estimator = trainer.model_to_tpu_estimator(
        keras_model=keras_model,
        keras_model_path=keras_model_path,
        custom_objects=custom_objects,
        model_dir=model_dir,
        config=config,
        use_tpu=False,
        metric_names_map=metric_names_map,
        export_outputs=export_outputs,
    )
    return estimator
