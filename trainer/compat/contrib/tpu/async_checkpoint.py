"""tf.contrib.tpu.python.tpu.async_checkpoint: AsyncCheckpointSaverHook, which saves checkpoints.

In spite of its name, the hook of this module saves synchronously.
"""

from typing import Any

import tensorflow as tf

from trainer.compat import contrib_missing_names

__all__ = ["AsyncCheckpointSaverHook"]


class AsyncCheckpointSaverHook(tf.compat.v1.train.CheckpointSaverHook):
    """Saves checkpoints at fixed intervals; training waits for each checkpoint.

    The hook of tf.contrib saved in a thread while training continued. This hook saves
    synchronously, so every checkpoint holds the variables of a single step.
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
        super().__init__(
            checkpoint_dir,
            save_secs=save_secs,
            save_steps=save_steps,
            saver=saver,
            checkpoint_basename=checkpoint_basename,
            scaffold=scaffold,
            listeners=listeners,
        )


__getattr__ = contrib_missing_names.getattr_for(
    "tf.contrib.tpu.python.tpu.async_checkpoint", __all__
)
