"""TensorFlow's hooks for sessions, under the names that tf.estimator has for them.

Those that count steps are told by `train` how many steps a `session.run` makes.
"""

from typing import Any

import tensorflow as tf

CheckpointSaverHook = tf.compat.v1.train.CheckpointSaverHook
CheckpointSaverListener = tf.compat.v1.train.CheckpointSaverListener
FeedFnHook = tf.compat.v1.train.FeedFnHook
FinalOpsHook = tf.compat.v1.train.FinalOpsHook
GlobalStepWaiterHook = tf.compat.v1.train.GlobalStepWaiterHook
LoggingTensorHook = tf.compat.v1.train.LoggingTensorHook
NanLossDuringTrainingError = tf.compat.v1.train.NanLossDuringTrainingError
NanTensorHook = tf.compat.v1.train.NanTensorHook
SecondOrStepTimer = tf.compat.v1.train.SecondOrStepTimer
SessionRunArgs = tf.compat.v1.train.SessionRunArgs
SessionRunContext = tf.compat.v1.train.SessionRunContext
SessionRunHook = tf.compat.v1.train.SessionRunHook
SessionRunValues = tf.compat.v1.train.SessionRunValues
StepCounterHook = tf.compat.v1.train.StepCounterHook
StopAtStepHook = tf.compat.v1.train.StopAtStepHook
SummarySaverHook = tf.compat.v1.train.SummarySaverHook


class ProfilerHook(tf.compat.v1.train.ProfilerHook):
    """Writes a timeline of one `session.run` in so many steps or seconds."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        # It opens its file at once, which TensorFlow refuses to do in eager mode.
        with tf.Graph().as_default():
            super().__init__(*arguments, **named)
