"""The module async_checkpoint of tf.contrib.tpu.python.tpu."""

from typing import Any

import tensorflow as tf

from trainer.compat.contrib_names import missing_names

__all__ = ["AsyncCheckpointSaverHook"]


class AsyncCheckpointSaverHook(tf.compat.v1.train.CheckpointSaverHook):
    """Saves the checkpoints that the original saved, with training waiting for each.

    The original saved from a thread while training went on. Here every checkpoint holds the
    variables of one step.
    """

    def __init__(
        self,
        checkpoint_dir: str,
        save_secs: float | None = None,
        save_steps: int | None = None,
        saver: Any = None,
        checkpoint_basename: str = "model.ckpt",
        scaffold: Any = None,
        listeners: Any = None,
    ) -> None:
        """Saves every so many seconds or steps; see tf.compat.v1.train.CheckpointSaverHook."""
        super().__init__(
            checkpoint_dir,
            save_secs=save_secs,
            save_steps=save_steps,
            saver=saver,
            checkpoint_basename=checkpoint_basename,
            scaffold=scaffold,
            listeners=listeners,
        )


__getattr__ = missing_names.getattr_for("tf.contrib.tpu.python.tpu.async_checkpoint", __all__)
