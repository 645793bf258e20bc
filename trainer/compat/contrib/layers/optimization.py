"""A train op from a loss, an optimizer and what is to be done with the gradients."""

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
    """A tensor of the loss, which is there once a step is made.

    Args:
      loss: a scalar.
      global_step: counts the steps; None for the graph's.
      learning_rate: a float, which becomes the variable "learning_rate", or a scalar tensor; None
        where the optimizer has its own.
      optimizer: one of OPTIMIZER_CLS_NAMES; a tf.compat.v1.train.Optimizer, or a class of one; or
        a function of the learning rate that gives one.
      gradient_noise_scale: deviation of the noise that gradients get; None for none.
      gradient_multipliers: variable, or its name → factor of its gradient.
      clip_gradients: the most that the norm of all gradients together is left at; or a function
        of pairs of gradient and variable; None for none.
      learning_rate_decay_fn: takes the learning rate and the global step, gives the rate.
      update_ops: run before the loss; those in tf.GraphKeys.UPDATE_OPS by default.
      variables: all trainable ones by default.
      name: of the scope; "OptimizeLoss" by default.
      summaries: those of OPTIMIZER_SUMMARIES that are wanted; the rate, where it decays, the loss
        and the global norm by default.
      colocate_gradients_with_ops: see tf.gradients.
      increment_global_step: whether the step is counted.

    Raises:
      InvalidSetting: an argument is none of these.
    """
    loss = tf.convert_to_tensor(loss)
    if loss.shape.rank != 0:
        raise InvalidSetting(f"optimize_loss got a loss of the shape {loss.shape}. Give a scalar.")
    wanted = _DEFAULT_SUMMARIES if summaries is None else tuple(summaries)
    unknown = [each for each in wanted if each not in OPTIMIZER_SUMMARIES]
    if unknown:
        raise InvalidSetting(
            f"optimize_loss has the summaries {unknown}. Give some of {OPTIMIZER_SUMMARIES}."
        )
    global_step = v1.train.get_global_step() if global_step is None else global_step
    with v1.variable_scope(name, "OptimizeLoss", [loss, global_step]):
        if update_ops is None:
            update_ops = v1.get_collection(v1.GraphKeys.UPDATE_OPS)
        if update_ops:
            with tf.control_dependencies(list(dict.fromkeys(update_ops))):
                loss = tf.identity(loss)
        rate = _make_learning_rate(learning_rate, learning_rate_decay_fn, global_step)
        if learning_rate_decay_fn is not None and "learning_rate" in wanted:
            v1.summary.scalar("learning_rate", rate)
        applied = _make_optimizer(optimizer, rate)
        gradients = applied.compute_gradients(
            loss,
            variables or v1.trainable_variables(),
            colocate_gradients_with_ops=colocate_gradients_with_ops,
        )
        gradients = _transform_gradients(
            gradients, gradient_noise_scale, gradient_multipliers, clip_gradients, wanted
        )
        if "loss" in wanted:
            v1.summary.scalar("loss", loss)
        _summarize_gradients(gradients, wanted)
        # Else the loss might be that of the variables after the step.
        with tf.control_dependencies([loss]):
            step = applied.apply_gradients(
                gradients, global_step=global_step if increment_global_step else None, name="train"
            )
        with tf.control_dependencies([step]):
            return tf.identity(loss)


def _make_learning_rate(rate: Any, decay: Any, global_step: Any) -> Any:
    if rate is None:
        return None
    is_tensor = isinstance(rate, (tf.Tensor, tf.Variable)) and rate.shape.rank == 0
    is_number = isinstance(rate, (int, float)) and not isinstance(rate, bool) and rate >= 0
    if not is_tensor and not is_number:
        raise InvalidSetting(
            f"optimize_loss has the learning_rate {rate!r}. Give a scalar tensor, or a float of "
            f"at least 0."
        )
    if is_number:
        rate = v1.get_variable(
            "learning_rate", [], trainable=False, initializer=v1.constant_initializer(rate)
        )
    if decay is None:
        return rate
    if global_step is None:
        raise InvalidSetting("optimize_loss has a learning_rate_decay_fn. Give a global_step.")
    return decay(rate, global_step)


def _make_optimizer(given: Any, rate: Any) -> Any:
    if isinstance(given, v1.train.Optimizer):
        return given
    if isinstance(given, str):
        if given not in OPTIMIZER_CLS_NAMES or rate is None:
            raise InvalidSetting(
                f"optimize_loss has the optimizer {given!r} and the learning_rate {rate!r}. Give "
                f"one of {', '.join(OPTIMIZER_CLS_NAMES)}, and a rate."
            )
        return OPTIMIZER_CLS_NAMES[given](learning_rate=rate)
    found = None
    if isinstance(given, type) and rate is not None:
        found = given(learning_rate=rate)
    elif callable(given):
        found = given() if rate is None else given(rate)
    if not isinstance(found, v1.train.Optimizer):
        raise InvalidSetting(
            f"optimize_loss has the optimizer {given!r}. Give a name, a "
            f"tf.compat.v1.train.Optimizer, its class, or a function that gives one."
        )
    return found


def _transform_gradients(
    gradients: Any, noise: Any, multipliers: Any, clip: Any, wanted: Any
) -> Any:
    if noise is not None:
        gradients = [(_add_noise(gradient, noise), variable) for gradient, variable in gradients]
    if multipliers is not None:
        gradients = multiply_gradients(gradients, multipliers)
    if "global_gradient_norm" in wanted or "gradient_norm" in wanted:
        norm = tf.linalg.global_norm([each for each, _ in gradients])
        v1.summary.scalar("global_norm/gradient_norm", norm)
    if clip is None:
        return gradients
    if callable(clip):
        gradients = clip(gradients)
    elif isinstance(clip, (int, float)):
        clipped, _ = tf.clip_by_global_norm([each for each, _ in gradients], clip)
        gradients = list(zip(clipped, (variable for _, variable in gradients), strict=True))
    else:
        raise InvalidSetting(
            f"optimize_loss has clip_gradients={clip!r}. Give a float, or a function of pairs of "
            f"gradient and variable."
        )
    if "global_gradient_norm" in wanted or "gradient_norm" in wanted:
        norm = tf.linalg.global_norm([each for each, _ in gradients])
        v1.summary.scalar("global_norm/clipped_gradient_norm", norm)
    return gradients


def _add_noise(gradient: Any, scale: float) -> Any:
    if gradient is None:
        return None
    dense = tf.convert_to_tensor(gradient)
    return dense + scale * tf.random.truncated_normal(tf.shape(dense), dtype=dense.dtype)


def _summarize_gradients(gradients: Any, wanted: Any) -> None:
    for gradient, variable in gradients:
        if gradient is None:
            continue
        values = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
        name = variable.name.replace(":", "_")
        if "gradients" in wanted:
            v1.summary.histogram(f"gradients/{name}", values)
        if "gradient_norm" in wanted:
            v1.summary.scalar(f"gradient_norm/{name}", tf.linalg.global_norm([values]))
