"""Optimizers that go by whether a gradient agrees with those before it.

Both keep m ← β m + (1 - β) g, and look at sign(g) sign(m).
Source: Bello et al., "Neural Optimizer Search with Reinforcement Learning", 2017.
"""

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainer.compat.contrib.opt.elementwise import ElementwiseOptimizer, cast_setting

v1 = tf.compat.v1

DecayFn = Callable[[Any], Any]


class _SignOptimizer(ElementwiseOptimizer):
    """A gradient scaled by what becomes of the agreement."""

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
        """The op that applies gradients; sign_decay_fn takes the global step."""
        if self._sign_decay_fn is not None:
            self._sign_decay = self._sign_decay_fn(global_step)
        return super().apply_gradients(grads_and_vars, global_step, name)

    def gradient_factor(self, agreement: Any, variable: Any) -> Any:
        """The factor of a gradient."""
        raise NotImplementedError

    def _create_slots(self, var_list: Any) -> None:
        for each in var_list:
            self._zeros_slot(each, "m", self._name)

    def build_update(self, gradient: Any, variable: Any) -> Any:
        """The op that updates a variable."""
        slot, beta = self.get_slot(variable, "m"), cast_setting(self._beta, variable)
        mean = beta * slot + (1 - beta) * gradient
        agreement = tf.sign(gradient) * tf.sign(mean) * cast_setting(self._sign_decay, variable)
        move = (
            cast_setting(self._rate, variable)
            * self.gradient_factor(agreement, variable)
            * gradient
        )
        return tf.group(v1.assign(slot, mean), v1.assign_sub(variable, move))


class PowerSignOptimizer(_SignOptimizer):
    """w ← w - learning_rate base^(decay sign(g) sign(m)) g."""

    def __init__(
        self,
        learning_rate: Any = 0.1,
        base: float = math.e,
        beta: float = 0.9,
        sign_decay_fn: DecayFn | None = None,
        use_locking: bool = False,
        name: str = "PowerSignOptimizer",
    ) -> None:
        """Scales gradients by a power.

        Args:
          learning_rate: a float or a scalar tensor.
          base: of the power; above 0.
          beta: how much of m each step keeps.
          sign_decay_fn: takes the global step, gives the decay; 1 without it.
          use_locking, name: see tf.compat.v1.train.Optimizer.
        """
        super().__init__(learning_rate, beta, sign_decay_fn, use_locking, name)
        self._log_base = math.log(base)

    def gradient_factor(self, agreement: Any, variable: Any) -> Any:
        """The factor of a gradient."""
        return tf.exp(cast_setting(self._log_base, variable) * agreement)


class AddSignOptimizer(_SignOptimizer):
    """w ← w - learning_rate (alpha + decay sign(g) sign(m)) g."""

    def __init__(
        self,
        learning_rate: Any = 0.1,
        alpha: float = 1.0,
        beta: float = 0.9,
        sign_decay_fn: DecayFn | None = None,
        use_locking: bool = False,
        name: str = "AddSignOptimizer",
    ) -> None:
        """Scales gradients by a sum.

        Args:
          alpha: what the agreement is added to.
          learning_rate, beta, sign_decay_fn, use_locking, name: see `PowerSignOptimizer`.
        """
        super().__init__(learning_rate, beta, sign_decay_fn, use_locking, name)
        self._alpha = alpha

    def gradient_factor(self, agreement: Any, variable: Any) -> Any:
        """The factor of a gradient."""
        return cast_setting(self._alpha, variable) + agreement


def get_linear_decay_fn(decay_steps: int) -> DecayFn:
    """From 1 to 0 in so many steps: 1 - step / decay_steps."""

    def decay(global_step: Any) -> Any:
        done = tf.cast(tf.minimum(tf.cast(global_step, tf.int64), decay_steps), tf.float32)
        return 1.0 - done / decay_steps

    return decay


def get_cosine_decay_fn(
    decay_steps: int, num_periods: float = 0.5, zero_after: float | None = None
) -> DecayFn:
    """From 1 along (1 + cos(2π num_periods step / decay_steps)) / 2.

    Args:
      decay_steps: the step after which it stays.
      num_periods: of the cosine, in that time.
      zero_after: of the periods after which it is 0; None for none.
    """

    def decay(global_step: Any) -> Any:
        done = tf.cast(tf.minimum(tf.cast(global_step, tf.int64), decay_steps), tf.float32)
        periods = num_periods * done / decay_steps
        value = 0.5 * (1.0 + tf.cos(2.0 * math.pi * periods))
        if zero_after is None:
            return value
        return tf.where(periods >= zero_after, tf.zeros_like(value), value)

    return decay
