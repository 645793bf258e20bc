"""PowerSign and AddSign, optimizers that scale gradients by their agreement with earlier ones.

Both optimizers keep a moving average of the gradient g, m ← β * m + (1 - β) * g.
"""

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib.opt.elementwise import ElementwiseOptimizer, cast_setting

v1 = tf.compat.v1

DecayFn = Callable[[Any], Any]


class _SignOptimizer(ElementwiseOptimizer):
    """Base class of PowerSign and AddSign, which scale gradients before they apply them."""

    def __init__(
        self,
        learning_rate: Any,
        beta: float,
        sign_decay_fn: DecayFn | None,
        use_locking: bool,
        name: str,
    ) -> None:
        super().__init__(use_locking, name)
        self._rate, self._beta, self._sign_decay_fn = learning_rate, beta, sign_decay_fn
        self._sign_decay: Any = 1.0

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
    ) -> Any:
        if self._sign_decay_fn is not None:
            self._sign_decay = self._sign_decay_fn(global_step)
        return super().apply_gradients(grads_and_vars, global_step, name)

    def gradient_factor(self, agreement: Any, variable: Any) -> Any:
        raise NotImplementedError

    def _create_slots(self, var_list: Any) -> None:
        for variable in var_list:
            self._zeros_slot(variable, "m", self._name)

    def build_update(self, gradient: Any, variable: Any) -> Any:
        slot, beta = self.get_slot(variable, "m"), cast_setting(self._beta, variable)
        mean = beta * slot + (1 - beta) * gradient
        agreement = tf.sign(gradient) * tf.sign(mean) * cast_setting(self._sign_decay, variable)
        change = (
            cast_setting(self._rate, variable)
            * self.gradient_factor(agreement, variable)
            * gradient
        )
        return tf.group(v1.assign(slot, mean), v1.assign_sub(variable, change))


class PowerSignOptimizer(_SignOptimizer):
    """The optimizer w ← w - learning_rate * base^agreement * g, for a variable w with gradient g.

    The agreement is decay * sign(g) * sign(m), where m is a moving average of the gradients.

    Args:
      beta: the factor by which each step multiplies m, the moving average of the gradients.
      sign_decay_fn: a function that takes the global step, and returns the factor `decay` of
        the agreement; None for the factor 1.
      use_locking: see tf.compat.v1.train.Optimizer.
      name: see tf.compat.v1.train.Optimizer.
    """

    def __init__(
        self,
        learning_rate: Any = 0.1,
        base: float = math.e,
        beta: float = 0.9,
        sign_decay_fn: DecayFn | None = None,
        use_locking: bool = False,
        name: str = "PowerSignOptimizer",
    ) -> None:
        super().__init__(learning_rate, beta, sign_decay_fn, use_locking, name)
        self._log_base = math.log(base)

    def gradient_factor(self, agreement: Any, variable: Any) -> Any:
        """Return the factor by which to multiply a gradient, base^agreement."""
        return tf.exp(cast_setting(self._log_base, variable) * agreement)


class AddSignOptimizer(_SignOptimizer):
    """The optimizer w ← w - learning_rate * (alpha + agreement) * g, for a variable w.

    The agreement of the gradient g is decay * sign(g) * sign(m), where m is a moving average of the
    gradients.
    """

    def __init__(
        self,
        learning_rate: Any = 0.1,
        alpha: float = 1.0,
        beta: float = 0.9,
        sign_decay_fn: DecayFn | None = None,
        use_locking: bool = False,
        name: str = "AddSignOptimizer",
    ) -> None:
        super().__init__(learning_rate, beta, sign_decay_fn, use_locking, name)
        self._alpha = alpha

    def gradient_factor(self, agreement: Any, variable: Any) -> Any:
        """Return the factor by which to multiply a gradient, alpha + agreement."""
        return cast_setting(self._alpha, variable) + agreement


def get_linear_decay_fn(decay_steps: int) -> DecayFn:
    """Return a sign_decay_fn whose decay falls linearly from 1 to 0 in decay_steps, and stays 0.

    Returns:
      A function of the global step, an integer scalar tensor, that returns a float32 scalar.
    """

    def decay(global_step: Any) -> Any:
        return 1.0 - _clip_step(global_step, decay_steps) / decay_steps

    return decay


def get_cosine_decay_fn(
    decay_steps: int, num_periods: float = 0.5, zero_after: float | None = None
) -> DecayFn:
    """Return a sign_decay_fn whose decay follows a cosine, starting from 1.

    The decay is (1 + cos(2π * num_periods * step / decay_steps)) / 2.

    Args:
      zero_after: number of periods after which the decay is 0; None for no such limit.

    Returns:
      A function of the global step, an integer scalar tensor, that returns a float32 scalar.
    """

    def decay(global_step: Any) -> Any:
        periods = num_periods * _clip_step(global_step, decay_steps) / decay_steps
        value = 0.5 * (1.0 + tf.cos(2.0 * math.pi * periods))
        if zero_after is None:
            return value
        return tf.where(periods >= zero_after, tf.zeros_like(value), value)

    return decay


def _clip_step(global_step: Any, decay_steps: int) -> Any:
    if global_step is None:
        raise InvalidSetting(
            "sign_decay_fn computes the decay from the global step, and global_step is None. Give "
            "minimize or apply_gradients a global_step."
        )
    return tf.cast(tf.minimum(tf.cast(global_step, tf.int64), decay_steps), tf.float32)
