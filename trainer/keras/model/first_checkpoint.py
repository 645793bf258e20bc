"""Writes and checks the checkpoint from which the training of a converted model starts."""

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

# The maximum number of missing variables that an error message names.
_MAX_LISTED = 5


def write_checkpoint(model_dir: str, values: Mapping[str, Any]) -> str:
    """Write a checkpoint and register it as the newest one of its directory.

    Args:
      values: variable name → array; among them the global step, int64.
    """
    step = int(values[checkpoints.GLOBAL_STEP])
    tf.io.gfile.makedirs(model_dir)
    path = tf.io.gfile.join(model_dir, f"model.ckpt-{step}")
    with eager_mode():
        tf.raw_ops.SaveV2(
            prefix=path,
            tensor_names=list(values),
            shape_and_slices=[""] * len(values),
            tensors=[tf.convert_to_tensor(value) for value in values.values()],
        )
    update_checkpoint_state(model_dir, path, [path], save_relative_paths=True)
    return path


def check_checkpoint(checkpoint: str, variables: Iterable[CheckpointVariable]) -> None:
    """Check that a checkpoint has every variable of a model, with the same shape.

    Raises:
      CheckpointMismatch: variables are missing or have another shape; the message names them.
    """
    saved_shapes = tf.train.load_checkpoint(checkpoint).get_variable_to_shape_map()
    shapes = {variable.name: variable.keras_variable.shape.as_list() for variable in variables}
    missing = [
        f"{name} {shape}" for name, shape in shapes.items() if saved_shapes.get(name) != shape
    ]
    if missing:
        raise CheckpointMismatch(
            f"checkpoint {checkpoint} does not belong to this model: it lacks "
            f"{', '.join(missing[:_MAX_LISTED])}{' ...' if len(missing) > _MAX_LISTED else ''}. "
            f"Use the model and the optimizer that wrote it, or another model_dir."
        )
