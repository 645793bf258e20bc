"""Checkpoints: the saver of a run, and what a model_dir holds."""

from typing import Any

import tensorflow as tf

from tpuserve.errors import CheckpointNotFound
from trainer.config import RunConfig

GLOBAL_STEP = "global_step"


def with_saver(scaffold: Any, config: RunConfig) -> Any:
    """The model's Scaffold, or a new one, with a saver that keeps what the config says."""
    scaffold = scaffold or tf.compat.v1.train.Scaffold()
    if scaffold.saver is None:
        scaffold._saver = tf.compat.v1.train.Saver(
            max_to_keep=config.keep_checkpoint_max,
            keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours,
            # A model_dir that is moved or copied keeps working.
            save_relative_paths=True,
            # Built when the graph is finalized, with what hooks have added by then.
            defer_build=True,
        )
    return scaffold


def latest_step(model_dir: str) -> int:
    """The global step of the newest checkpoint; 0 where there is none."""
    path = tf.train.latest_checkpoint(model_dir)
    if path is None:
        return 0
    return int(tf.train.load_checkpoint(path).get_tensor(GLOBAL_STEP))


def find(model_dir: str, checkpoint_path: str | None = None) -> str:
    """The checkpoint to read: the one asked for, else the newest.

    Raises:
      CheckpointNotFound: it is not there.
    """
    if checkpoint_path is not None:
        if not tf.compat.v1.train.checkpoint_exists(checkpoint_path):
            raise CheckpointNotFound(
                f"no checkpoint {checkpoint_path}. Name one as it is written, without the "
                f"ending .index: model.ckpt-1000."
            )
        return checkpoint_path
    path = tf.train.latest_checkpoint(model_dir)
    if path is None:
        raise CheckpointNotFound(
            f"Couldn't find trained model at {model_dir}: no checkpoint there. Call train() "
            f"first, or name a checkpoint_path."
        )
    return str(path)
