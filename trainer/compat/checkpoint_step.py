"""Reads the global step from which the sample programs for TPUEstimator resume training."""

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
