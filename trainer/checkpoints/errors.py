"""Errors that are also the errors of TensorFlow that tf.estimator raises, which programs catch."""

import tensorflow as tf

from tpuserve.errors import CheckpointMismatch, CheckpointNotFound


class CheckpointShapeMismatch(CheckpointMismatch, tf.errors.InvalidArgumentError):
    """A checkpoint has variables of the model with other shapes."""

    def __init__(self, message: str) -> None:
        tf.errors.InvalidArgumentError.__init__(self, None, None, message)


class WarmStartNotFound(CheckpointNotFound, tf.errors.NotFoundError):
    """The checkpoint of a warm start does not exist."""

    def __init__(self, message: str) -> None:
        tf.errors.NotFoundError.__init__(self, None, None, message)
