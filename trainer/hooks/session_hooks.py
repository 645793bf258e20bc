"""TensorFlow's session hooks under the names that they have in tf.estimator.

The hooks that count steps also work if one `session.run` makes several steps: `Estimator.train`
sets the number of steps per run on these hooks.
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
    """Writes a timeline of one `session.run`, at intervals of steps or of seconds."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        # Construct the hook in graph mode, because the constructor opens a FileWriter, which
        # TensorFlow refuses in eager mode.
        with tf.Graph().as_default():
            super().__init__(*arguments, **named)
