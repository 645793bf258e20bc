"""optimize_loss, which builds a train op with learning rate decay, clipping and summaries."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib.training.train_op import multiply_gradients

v1 = tf.compat.v1

OPTIMIZER_CLS_NAMES: dict[str, Any] = {
    "Adagrad": v1.train.AdagradOptimizer,
    "Adam": v1.train.AdamOptimizer,
    "Ftrl": v1.train.FtrlOptimizer,
    "Momentum": lambda learning_rate: v1.train.MomentumOptimizer(learning_rate, momentum=0.9),
    "RMSProp": v1.train.RMSPropOptimizer,
    "SGD": v1.train.GradientDescentOptimizer,
}

OPTIMIZER_SUMMARIES = [
    "learning_rate",
    "loss",
    "gradients",
    "gradient_norm",
    "global_gradient_norm",
]

_DEFAULT_SUMMARIES = ("learning_rate", "loss", "global_gradient_norm")


def optimize_loss(
    loss: Any,
    global_step: Any,
    learning_rate: Any,
    optimizer: Any,
    gradient_noise_scale: float | None = None,
    gradient_multipliers: Any = None,
    clip_gradients: Any = None,
    learning_rate_decay_fn: Callable[[Any, Any], Any] | None = None,
    update_ops: Sequence[Any] | None = None,
    variables: Sequence[Any] | None = None,
    name: str | None = None,
    summaries: Sequence[str] | None = None,
    colocate_gradients_with_ops: bool = False,
    increment_global_step: bool = True,
) -> Any:
    """Build a train op that returns the loss.

    Args:
      global_step: variable that counts the steps; None for the graph's global step.
      learning_rate: a float, which becomes the variable "learning_rate", or a scalar tensor; None
        if the optimizer has its own.
      optimizer: a key of OPTIMIZER_CLS_NAMES; a tf.compat.v1.train.Optimizer or its class; or a
        function that returns an optimizer for a learning rate.
      gradient_noise_scale: standard deviation of noise to add to the gradients; None for none.
      clip_gradients: maximum global norm of the gradients; or a function that maps (gradient,
        variable) pairs to such pairs; None for no clipping.
      update_ops: ops to run before the loss is computed; by default those in
        tf.GraphKeys.UPDATE_OPS.
      variables: variables to train; all trainable variables by default.
      summaries: elements of OPTIMIZER_SUMMARIES to write; by default the loss, the global norm of
        the gradients, and, if it decays, the learning rate.

    Raises:
      InvalidSetting: an argument has none of the types or values that are listed above.
    """
    loss = tf.convert_to_tensor(loss)
    if loss.shape.rank != 0:
        raise InvalidSetting(f"optimize_loss got a loss of shape {loss.shape}. Pass a scalar.")
    summaries = _DEFAULT_SUMMARIES if summaries is None else tuple(summaries)
    unknown = [summary for summary in summaries if summary not in OPTIMIZER_SUMMARIES]
    if unknown:
        raise InvalidSetting(
            f"optimize_loss got unknown summaries {unknown}. Use some of {OPTIMIZER_SUMMARIES}."
        )
    global_step = v1.train.get_global_step() if global_step is None else global_step
    with v1.variable_scope(name, "OptimizeLoss", [loss, global_step]):
        if update_ops is None:
            update_ops = v1.get_collection(v1.GraphKeys.UPDATE_OPS)
        if update_ops:
            with tf.control_dependencies(list(dict.fromkeys(update_ops))):
                loss = tf.identity(loss)
        rate = _make_learning_rate(learning_rate, learning_rate_decay_fn, global_step)
        if learning_rate_decay_fn is not None and "learning_rate" in summaries:
            v1.summary.scalar("learning_rate", rate)
        optimizer = _make_optimizer(optimizer, rate)
        gradients = optimizer.compute_gradients(
            loss,
            variables or v1.trainable_variables(),
            colocate_gradients_with_ops=colocate_gradients_with_ops,
        )
        gradients = _transform_gradients(
            gradients, gradient_noise_scale, gradient_multipliers, clip_gradients, summaries
        )
        if "loss" in summaries:
            v1.summary.scalar("loss", loss)
        _summarize_gradients(gradients, summaries)
        # Let the optimizer wait for the loss, which has to be computed before the variables change.
        with tf.control_dependencies([loss]):
            step = optimizer.apply_gradients(
                gradients, global_step=global_step if increment_global_step else None, name="train"
            )
        with tf.control_dependencies([step]):
            return tf.identity(loss)


def _make_learning_rate(rate: Any, decay: Any, global_step: Any) -> Any:
    """Return the learning rate of `optimize_loss`; None if the optimizer has its own."""
    if rate is None:
        return None
    is_tensor = isinstance(rate, (tf.Tensor, tf.Variable)) and rate.shape.rank == 0
    is_number = isinstance(rate, (int, float)) and not isinstance(rate, bool) and rate >= 0
    if not is_tensor and not is_number:
        raise InvalidSetting(
            f"optimize_loss got learning_rate={rate!r}. Pass a scalar tensor, or a float of "
            f"at least 0."
        )
    if is_number:
        rate = v1.get_variable(
            "learning_rate", [], trainable=False, initializer=v1.constant_initializer(rate)
        )
    if decay is None:
        return rate
    if global_step is None:
        raise InvalidSetting(
            "optimize_loss needs a global_step for learning_rate_decay_fn. Pass global_step."
        )
    return decay(rate, global_step)


def _make_optimizer(optimizer: Any, rate: Any) -> Any:
    """Return the tf.compat.v1.train.Optimizer of `optimize_loss`."""
    if isinstance(optimizer, v1.train.Optimizer):
        return optimizer
    if isinstance(optimizer, str):
        if optimizer not in OPTIMIZER_CLS_NAMES or rate is None:
            raise InvalidSetting(
                f"optimize_loss got optimizer={optimizer!r} and learning_rate={rate!r}. Use one "
                f"of {', '.join(OPTIMIZER_CLS_NAMES)}, and set a learning rate."
            )
        return OPTIMIZER_CLS_NAMES[optimizer](learning_rate=rate)
    instance = None
    if isinstance(optimizer, type) and rate is not None:
        instance = optimizer(learning_rate=rate)
    elif callable(optimizer):
        instance = optimizer() if rate is None else optimizer(rate)
    if not isinstance(instance, v1.train.Optimizer):
        raise InvalidSetting(
            f"optimize_loss got optimizer={optimizer!r}. Pass a name, a "
            f"tf.compat.v1.train.Optimizer, its class, or a function that returns one."
        )
    return instance


def _transform_gradients(
    gradients: Any, noise: Any, multipliers: Any, clip: Any, summaries: Any
) -> Any:
    """Add noise to gradients, multiply and clip them, and add summaries of their global norm."""
    if noise is not None:
        gradients = [(_add_noise(gradient, noise), variable) for gradient, variable in gradients]
    if multipliers is not None:
        gradients = multiply_gradients(gradients, multipliers)
    if "global_gradient_norm" in summaries or "gradient_norm" in summaries:
        norm = tf.linalg.global_norm([gradient for gradient, _ in gradients])
        v1.summary.scalar("global_norm/gradient_norm", norm)
    if clip is None:
        return gradients
    if callable(clip):
        gradients = clip(gradients)
    elif isinstance(clip, (int, float)):
        clipped, _ = tf.clip_by_global_norm([gradient for gradient, _ in gradients], clip)
        gradients = list(zip(clipped, (variable for _, variable in gradients), strict=True))
    else:
        raise InvalidSetting(
            f"optimize_loss got clip_gradients={clip!r}. Pass a float, or a function of (gradient, "
            f"variable) pairs."
        )
    if "global_gradient_norm" in summaries or "gradient_norm" in summaries:
        norm = tf.linalg.global_norm([gradient for gradient, _ in gradients])
        v1.summary.scalar("global_norm/clipped_gradient_norm", norm)
    return gradients


def _add_noise(gradient: Any, scale: float) -> Any:
    if gradient is None:
        return None
    dense = tf.convert_to_tensor(gradient)
    return dense + scale * tf.random.truncated_normal(tf.shape(dense), dtype=dense.dtype)


def _summarize_gradients(gradients: Any, summaries: Any) -> None:
    """Add a histogram of each gradient's values and a scalar summary of its norm, if requested."""
    for gradient, variable in gradients:
        if gradient is None:
            continue
        values = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
        name = variable.name.replace(":", "_")
        if "gradients" in summaries:
            v1.summary.histogram(f"gradients/{name}", values)
        if "gradient_norm" in summaries:
            v1.summary.scalar(f"gradient_norm/{name}", tf.linalg.global_norm([values]))
