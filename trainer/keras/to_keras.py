"""Copies the values of a trained estimator back into the Keras model that was converted."""

import logging
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting, InvalidType
from trainer.checkpoints import checkpoints
from trainer.estimator.estimator import Estimator
from trainer.keras.estimator import KerasTPUEstimator
from trainer.keras.model import first_checkpoint
from trainer.keras.model.tracing import eager_mode

logger = logging.getLogger("tensorflow.trainer")


def to_keras(estimator: Estimator, checkpoint_path: str | None = None) -> Any:
    """Copy the weights and the optimizer's state of a checkpoint into the estimator's Keras model.

    The result is the model that the user passed to `model_to_tpu_estimator`, or the model that
    `model_to_tpu_estimator` loaded. After the copy, model.fit continues as if it had run all steps
    itself. If the optimizer keeps moving averages of the weights (use_ema) and has made at least
    one step, the averages replace the weights, as at the end of model.fit.

    Args:
      estimator: the result of `model_to_tpu_estimator` or of its method `with_options`.

    Returns:
      The Keras model.

    Raises:
      InvalidSetting: the model has not been built by a first batch yet.
      CheckpointMismatch: the checkpoint belongs to a different model.
    """
    if not isinstance(estimator, KerasTPUEstimator):
        raise InvalidType(
            f"to_keras needs an estimator from model_to_tpu_estimator; it got {estimator!r}."
        )
    converted = estimator.converted_model
    path = checkpoints.find_checkpoint(estimator.model_dir, checkpoint_path)
    if not converted.is_built:
        raise InvalidSetting(
            f"{converted.label} has no weights yet, because it has not processed a batch. "
            f"Call train(), evaluate() or predict() of the estimator first."
        )
    variables = converted.variables()
    first_checkpoint.check_checkpoint(path, variables)
    reader = tf.train.load_checkpoint(path)
    with eager_mode():
        for variable in variables:
            variable.keras_variable.assign(reader.get_tensor(variable.name))
        if int(converted.adapter.iterations(converted.model).numpy()) > 0:
            converted.adapter.finish_training(converted.model)
    logger.info("%s: restored %d variables from %s", converted.label, len(variables), path)
    if converted.graph_model is None:
        return converted.model
    # Import graph_mode here, so that a program without models of TensorFlow 1 does not import
    # tf_keras.
    from trainer.keras import graph_mode

    graph_mode.copy_back(converted.model, converted.graph_model)
    return converted.graph_model
