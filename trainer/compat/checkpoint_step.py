"""The global step that a program goes on from, read as the programs of the samples read it."""

import tensorflow as tf

from trainer.checkpoints import checkpoints


def read_latest_global_step(checkpoint_dir: str) -> int:
    """The global step of the newest checkpoint in a directory; 0 where none can be read."""
    try:
        return checkpoints.read_global_step(str(tf.train.latest_checkpoint(checkpoint_dir)))
    except (tf.errors.OpError, KeyError, ValueError):
        # As programs rely on: they ask before the first checkpoint is there.
        return 0
