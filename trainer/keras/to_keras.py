"""What an estimator has trained, back in the Keras model."""

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
    """The Keras model of an estimator, with the weights and the optimizer's state of a checkpoint.

    It is the model that became the estimator, or that was loaded for it. model.fit goes on from
    there as if it had made all steps itself. Where the optimizer keeps moving averages of the
    weights (use_ema), they take the place of the weights, as they do at the end of model.fit.

    Args:
      estimator: from `model_to_tpu_estimator`, or one that was made of such.
      checkpoint_path: which checkpoint; None for the newest.

    Raises:
      InvalidType: the estimator was made from no Keras model.
      InvalidSetting: the model waits for its first batch still, to be built.
      CheckpointNotFound: nothing is trained.
      CheckpointMismatch: the checkpoint is of another model.
    """
    if not isinstance(estimator, KerasTPUEstimator):
        raise InvalidType(
            f"estimator is {estimator!r}. Give one that model_to_tpu_estimator has made."
        )
    converted = estimator.converted_model
    path = checkpoints.find_checkpoint(estimator.model_dir, checkpoint_path)
    if not converted.is_built:
        raise InvalidSetting(
            f"{converted.where} has never met a batch, so it has no weights to put values into. "
            f"Call train(), evaluate() or predict() of the estimator first."
        )
    weights = converted.variables()
    first_checkpoint.check_checkpoint(path, weights)
    reader = tf.train.load_checkpoint(path)
    with eager_mode():
        for each in weights:
            each.variable.assign(reader.get_tensor(each.name))
        if int(converted.adapter.iterations(converted.model).numpy()) > 0:
            converted.adapter.finish_training(converted.model)
    logger.info("%s: %d values from %s", converted.where, len(weights), path)
    if converted.graph_model is None:
        return converted.model
    from trainer.keras.tf_keras import graph_mode

    graph_mode.copy_back(converted.model, converted.graph_model)
    return converted.graph_model
