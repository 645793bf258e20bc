"""Functions that build train ops, and that clip, scale and summarize gradients."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

v1 = tf.compat.v1

Gradients = list[tuple[Any, Any]]

USE_GLOBAL_STEP = 0


def add_gradients_summaries(grads_and_vars: Gradients) -> list[Any]:
    """Add a histogram of each gradient's values and a scalar summary of each gradient's norm.

    Args:
      grads_and_vars: (gradient, variable) pairs; a gradient of None gets no summaries.
    """
    summaries = []
    for gradient, variable in grads_and_vars:
        if gradient is None:
            continue
        values = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
        name = variable.op.name
        summaries.append(v1.summary.histogram(f"{name}_gradient", values))
        summaries.append(
            v1.summary.scalar(f"{name}_gradient_norm", tf.linalg.global_norm([values]))
        )
    return summaries


def clip_gradient_norms(gradients_to_variables: Gradients, max_norm: float) -> Gradients:
    """Clip the norm of each gradient to max_norm."""

    def clip(gradient: Any) -> Any:
        if gradient is None:
            return None
        if isinstance(gradient, tf.IndexedSlices):
            values = tf.clip_by_norm(gradient.values, max_norm)
            return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
        return tf.clip_by_norm(gradient, max_norm)

    return [(clip(gradient), variable) for gradient, variable in gradients_to_variables]


def clip_gradient_norms_fn(max_norm: float) -> Callable[[Gradients], Gradients]:
    """Return a function of (gradient, variable) pairs that clips each gradient to max_norm."""
    return functools.partial(clip_gradient_norms, max_norm=max_norm)


def multiply_gradients(
    grads_and_vars: Gradients, gradient_multipliers: Mapping[Any, Any]
) -> Gradients:
    """Multiply gradients by factors.

    Args:
      gradient_multipliers: maps a variable, or a variable's name, to a factor. The gradients of
        other variables stay unchanged.
    """
    factors = {_variable_name(key): factor for key, factor in gradient_multipliers.items()}

    def scale(gradient: Any, factor: Any) -> Any:
        factor = tf.cast(factor, gradient.dtype)
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(
                gradient.values * factor, gradient.indices, gradient.dense_shape
            )
        return gradient * factor

    return [
        (scale(gradient, factors[variable.op.name]), variable)
        if gradient is not None and variable.op.name in factors
        else (gradient, variable)
        for gradient, variable in grads_and_vars
    ]


def _variable_name(variable: Any) -> str:
    name = variable if isinstance(variable, str) else variable.op.name
    return str(name).removesuffix(":0")


def create_train_op(
    total_loss: Any,
    optimizer: Any,
    global_step: Any = USE_GLOBAL_STEP,
    update_ops: Sequence[Any] | None = None,
    variables_to_train: Sequence[Any] | None = None,
    transform_grads_fn: Callable[[Gradients], Gradients] | None = None,
    summarize_gradients: bool = False,
    gate_gradients: int = 1,
    aggregation_method: Any = None,
    colocate_gradients_with_ops: bool = False,
    check_numerics: bool = True,
) -> Any:
    """Build a train op that returns the loss.

    Args:
      global_step: variable that counts the steps; the graph's global step by default; None to count
        no steps.
      update_ops: ops to run before the loss is computed; by default those in
        tf.GraphKeys.UPDATE_OPS.
      variables_to_train: all trainable variables by default.
      transform_grads_fn: function that takes a list of (gradient, variable) pairs, and returns the
        pairs to apply; None applies the gradients unchanged.
      check_numerics: whether an infinite or NaN loss is an error.
    """
    if global_step is USE_GLOBAL_STEP:
        global_step = v1.train.get_or_create_global_step()
    if update_ops is None:
        update_ops = v1.get_collection(v1.GraphKeys.UPDATE_OPS)
    with tf.control_dependencies(update_ops):
        loss = tf.identity(total_loss)
    gradients = optimizer.compute_gradients(
        loss,
        variables_to_train or v1.trainable_variables(),
        gate_gradients=gate_gradients,
        aggregation_method=aggregation_method,
        colocate_gradients_with_ops=colocate_gradients_with_ops,
    )
    if transform_grads_fn is not None:
        gradients = transform_grads_fn(gradients)
    if summarize_gradients:
        with tf.name_scope("summarize_grads"):
            add_gradients_summaries(gradients)
    # Let the optimizer wait for the loss, which has to be computed before the variables change.
    with tf.control_dependencies([loss]):
        step = optimizer.apply_gradients(gradients, global_step=global_step)
    with tf.name_scope("train_op"):
        if check_numerics:
            loss = tf.debugging.check_numerics(loss, "LossTensor is inf or nan")
        with tf.control_dependencies([step]):
            train_op = tf.identity(loss, name="control_dependency")
    v1.get_collection_ref(v1.GraphKeys.TRAIN_OP).append(train_op)
    return train_op
