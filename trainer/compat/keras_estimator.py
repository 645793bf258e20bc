"""tf.keras.estimator.model_to_estimator, which converts a Keras model to a plain Estimator.

tf_keras imports this function from the module keras_lib of tensorflow_estimator. tpuserve supplies
that module, with the function of this file.
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

    See `trainer.model_to_tpu_estimator`, the same function for a TPU, for the details.

    Args:
      keras_model: the compiled model; give this argument or keras_model_path.
      keras_model_path: the path of a saved, compiled model.
      custom_objects: name → class or function that is needed to load the saved model.
      model_dir: the directory for checkpoints and summaries; by default that of config, else a
        new temporary directory.
      config: a RunConfig; by default one with the default settings.
      checkpoint_format: "saver" or "checkpoint": in tf.estimator, the format of the checkpoints.
        Here checkpoints have the same format in both cases.
      use_v2_estimator: has no effect; there is one Estimator class.
      metric_names_map: name of a metric in the model → its name in the results of evaluate(). If
        given, it must contain all metrics.
      export_outputs: name of an output → class of an export output, such as
        tf.estimator.export.PredictOutput. An export has a signature for each of these outputs.

    Raises:
      InvalidSetting: checkpoint_format is not a format, or another argument is invalid; see
        `trainer.model_to_tpu_estimator`.
    """
    if checkpoint_format not in _FORMATS:
        raise InvalidSetting(
            f"checkpoint_format is {checkpoint_format!r}. Use 'checkpoint' or 'saver'."
        )
    config = trainer.RunConfig() if config is None else config
    if isinstance(config, trainer.RunConfig) and not config.has_tpu_config:
        # Run one step per training loop: in tf.estimator, an estimator that is not a TPUEstimator
        # calls its hooks after each step.
        config = config.replace(tpu_config=trainer.TPUConfig(iterations_per_loop=1))
    estimator: trainer.Estimator = trainer.model_to_tpu_estimator(
        keras_model=keras_model,
        keras_model_path=keras_model_path,
        custom_objects=custom_objects,
        model_dir=model_dir,
        config=config,
        use_tpu=False,
        # Write one metagraph, as tf.estimator does, so that tf.saved_model.load(dir) needs no tags.
        export_to_tpu=False,
        metric_names_map=metric_names_map,
        export_outputs=export_outputs,
    )
    return estimator
