"""tf.keras.estimator: an Estimator of a Keras model.

tf_keras looks for it in tensorflow_estimator, as the module keras_lib.
"""

from collections.abc import Mapping
from typing import Any

import trainer
from tpuserve.errors import InvalidSetting

__all__ = ["model_to_estimator"]


def model_to_estimator(
    keras_model: Any = None,
    keras_model_path: str | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    model_dir: str | None = None,
    config: Any = None,
    checkpoint_format: str | None = None,
    use_v2_estimator: bool = False,
    metric_names_map: Any = None,
    export_outputs: Any = None,
) -> trainer.Estimator:
    """An Estimator that does what a compiled Keras model does, on the CPU.

    Args:
      keras_model, keras_model_path, custom_objects, model_dir, config: see
        `trainer.model_to_tpu_estimator`, which makes the same of them for a TPU.
      checkpoint_format: taken for compatibility; checkpoints are always of one form.
      use_v2_estimator: taken for compatibility; there is one Estimator.
      metric_names_map, export_outputs: not supported; None.

    Raises:
      InvalidSetting: an argument is not supported, or see `trainer.model_to_tpu_estimator`.
    """
    refused = {"metric_names_map": metric_names_map, "export_outputs": export_outputs}
    for name, value in refused.items():
        if value is not None:
            raise InvalidSetting(
                f"{name} is {value!r}, which is not supported. Leave it out, and name metrics and "
                f"outputs in the model."
            )
    estimator: trainer.Estimator = trainer.model_to_tpu_estimator(
        keras_model=keras_model,
        keras_model_path=keras_model_path,
        custom_objects=custom_objects,
        model_dir=model_dir,
        config=config,
        use_tpu=False,
    )
    return estimator
