"""Delays the updates of embedding tables by one step, like a TPU that pipelines the lookups.

Such a TPU looks up the rows for a step while it still computes the gradients of the previous step.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.graph import batch_rows
from trainer.embedding.table_step import RowGradients
from trainer.tensorflow_internals import get_private_attribute

# Key of a collection in the graph of a step. The collection holds one bool tensor of shape []:
# whether the step is the last of its loop. The last step must also apply its own gradients.
IS_LAST_STEP = "tpuserve/is_last_step"


def update_later(
    name: str,
    collected: RowGradients,
    activations: Sequence[Any],
    update: Callable[[RowGradients], list[Any]],
) -> list[Any]:
    """Build the ops that apply the previous step's gradients and store this step's gradients.

    Args:
      activations: the results of the lookups of this step, which must run before the update.
    """
    (is_last,) = tf.compat.v1.get_collection(IS_LAST_STEP)[-1:]
    with tf.init_scope():
        kept_ids = _keep(f"{name}/ids", tf.constant([-1]))
        dimension = collected.gradients.shape.as_list()[1]
        kept_gradients = _keep(f"{name}/gradients", tf.zeros([1, dimension]))
        has_kept = _create_local_variable(f"{name}/has_gradients", False)
    earlier = [variable.read_value() for variable in (kept_ids, kept_gradients, has_kept)]
    with tf.control_dependencies(activations):
        first = update(RowGradients(*map(tf.identity, earlier)))
    with tf.control_dependencies(first):
        ids = tf.where(is_last, collected.ids, -1)
        second = update(
            RowGradients(tf.identity(ids), tf.identity(collected.gradients), tf.identity(is_last))
        )
    with tf.control_dependencies(earlier):
        later = [
            kept_ids.assign(tf.where(is_last, -1, collected.ids), read_value=False),
            kept_gradients.assign(collected.gradients, read_value=False),
        ]
        for operation in later:
            _mark(operation)
        later.append(has_kept.assign(tf.logical_not(is_last), read_value=False))
    return [*first, *second, *later]


def _keep(name: str, initial_value: Any) -> Any:
    # Leave the first dimension of the variable unknown, because the number of ids differs between
    # batches.
    shape = tf.TensorShape([None, *initial_value.shape[1:]])
    variable = _create_local_variable(name, initial_value, validate_shape=False, shape=shape)
    _mark(variable.handle.op)
    return variable


def _create_local_variable(name: str, initial_value: Any, **options: Any) -> Any:
    return tf.compat.v1.Variable(
        initial_value,
        trainable=False,
        collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
        use_resource=True,
        name=name,
        **options,
    )


def _mark(operation: Any) -> None:
    """Mark an op that creates or assigns a variable whose number of rows depends on the batch."""
    value = tf.compat.v1.AttrValue(b=True)
    get_private_attribute(operation, "_set_attr")(batch_rows.ATTRIBUTE, value)
