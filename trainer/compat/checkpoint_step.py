"""Reads the global step of a checkpoint for programs that resume training from that step.

Google's sample programs for TPUEstimator import such a function from tensorflow_estimator, under
the private name _load_global_step_from_checkpoint_dir.
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
