"""The checkpoint that a converted model starts from."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from tpuserve.errors import CheckpointMismatch
from trainer.checkpoints import checkpoints
from trainer.keras.model.tracing import eager_mode
from trainer.keras.model.variables import CheckpointVariable
from trainer.tensorflow_internals import update_checkpoint_state

logger = logging.getLogger("tensorflow.trainer")


def write_checkpoint(model_dir: str, values: Mapping[str, Any], step: int) -> str:
    """Writes values, by name, as the checkpoint of a global step; returns its path."""
    tf.io.gfile.makedirs(model_dir)
    name = f"model.ckpt-{step}"
    path = tf.io.gfile.join(model_dir, name)
    with eager_mode():
        tensors = {**values, checkpoints.GLOBAL_STEP: tf.constant(step, tf.int64)}
        tf.raw_ops.SaveV2(
            prefix=path,
            tensor_names=list(tensors),
            shape_and_slices=[""] * len(tensors),
            tensors=[tf.convert_to_tensor(each) for each in tensors.values()],
        )
    update_checkpoint_state(model_dir, path, [path], save_relative_paths=True)
    return path


def check_checkpoint(checkpoint: str, weights: Iterable[CheckpointVariable]) -> None:
    """Refuses a checkpoint of another model.

    Raises:
      CheckpointMismatch: names what is missing or has another shape.
    """
    saved = tf.train.load_checkpoint(checkpoint).get_variable_to_shape_map()
    wrong = [
        f"{each.name} {each.variable.shape.as_list()}"
        for each in weights
        if saved.get(each.name) != each.variable.shape.as_list()
    ]
    if wrong:
        raise CheckpointMismatch(
            f"checkpoint {checkpoint} is not of this model: it has no {', '.join(wrong[:5])}"
            f"{' ...' if len(wrong) > 5 else ''}. Use the model and the optimizer that wrote it, "
            f"or another model_dir."
        )
