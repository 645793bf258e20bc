"""Reads the global step of a checkpoint for programs that resume training from that step.

Google's sample programs for TPUEstimator import the function under a private name from
tensorflow_estimator.
"""

import tensorflow as tf

from trainer.checkpoints import checkpoints


def read_latest_global_step(checkpoint_dir: str) -> int:
    """Return the global step of the newest checkpoint in a directory.

    Returns 0 if there is no checkpoint or if the checkpoint has no readable global step: programs
    call this function before the first checkpoint is written.
    """
    try:
        return checkpoints.read_global_step(str(tf.train.latest_checkpoint(checkpoint_dir)))
    except (tf.errors.OpError, KeyError, ValueError):
        return 0
