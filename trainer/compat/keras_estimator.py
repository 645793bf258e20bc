"""tf.keras.estimator.model_to_estimator, which converts a Keras model to a plain Estimator.

tf_keras imports this function from the module keras_lib of tensorflow_estimator. tpuserve supplies
a module keras_lib that has the function of this file.
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
    """Return a plain Estimator that trains, evaluates and predicts with a Keras model on the CPU.

    `trainer.model_to_tpu_estimator`, which converts a Keras model for a TPU, documents the details.

    Args:
      custom_objects: name → class or function that is needed to load the saved model.
      model_dir: the directory for checkpoints and summaries. The default is config.model_dir;
        if that is not set, a new temporary directory.
      config: a RunConfig; by default one with the default settings.
      metric_names_map: name of a metric in the model → its name in the results of evaluate(). The
        dict must contain all metrics. None keeps the names.
      export_outputs: name of an output → class of an export output, such as
        tf.estimator.export.PredictOutput. An export has a signature for each of these outputs.
    """
    if checkpoint_format not in _FORMATS:
        raise InvalidSetting(
            f"checkpoint_format is {checkpoint_format!r}. Use 'checkpoint' or 'saver'."
        )
    config = trainer.RunConfig() if config is None else config
    if isinstance(config, trainer.RunConfig) and not config.has_tpu_config:
        # Run one step per training loop, so that hooks are called after each step. A plain
        # Estimator of tf.estimator calls them after each step too.
        config = config.replace(tpu_config=trainer.TPUConfig(iterations_per_loop=1))
    estimator: trainer.Estimator = trainer.model_to_tpu_estimator(
        keras_model=keras_model,
        keras_model_path=keras_model_path,
        custom_objects=custom_objects,
        model_dir=model_dir,
        config=config,
        use_tpu=False,
        # Export only the metagraph for the CPU, as tf.estimator does, so that tf.saved_model.load
        # needs no tags.
        export_to_tpu=False,
        metric_names_map=metric_names_map,
        export_outputs=export_outputs,
    )
    return estimator
