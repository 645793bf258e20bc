"""LARS: momentum with a learning rate of its own for each layer."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib.opt.elementwise import ElementwiseOptimizer, cast_setting

v1 = tf.compat.v1


class LARSOptimizer(ElementwiseOptimizer):
    """Layer-wise adaptive rate scaling, for large batches.

    With g the gradient and w the variable, both norms above 0:
      trust = eeta |w| / (|g| + weight_decay |w| + epsilon), else 1
      m ← momentum m + learning_rate trust (g + weight_decay w)
      w ← w - m
    Source: You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks", 2017.
    """

    def __init__(
        self,
        learning_rate: Any,
        momentum: float = 0.9,
        weight_decay: float = 0.0001,
        eeta: float = 0.001,
        epsilon: float = 0.0,
        name: str = "LARSOptimizer",
        skip_list: Sequence[str] | None = None,
        use_nesterov: bool = False,
    ) -> None:
        """Scales the rate of every variable that is not skipped.

        Args:
          learning_rate: a float or a scalar tensor.
          momentum: how much of m each step keeps; at least 0.
          weight_decay: of the variables; see above.
          eeta: the trust coefficient.
          epsilon: added to the divisor.
          name: of the ops and slots.
          skip_list: parts of the names of variables, such as "batch_normalization" and "bias",
            that neither decay nor have their rate scaled.
          use_nesterov: whether w moves by what m took in + momentum m, m being the new one.

        Raises:
          InvalidSetting: the momentum is below 0.
        """
        if momentum < 0.0:
            raise InvalidSetting(f"LARSOptimizer momentum is {momentum}. Give at least 0.")
        super().__init__(use_locking=False, name=name)
        self._learning_rate = learning_rate
        self._momentum = momentum
        self._weight_decay = weight_decay
        self._eeta = eeta
        self._epsilon = epsilon
        self._skip_list = skip_list
        self._use_nesterov = use_nesterov

    def _create_slots(self, var_list: Any) -> None:
        for each in var_list:
            self._zeros_slot(each, "momentum", self._name)

    def build_update(self, gradient: Any, variable: Any) -> Any:
        """The op that updates a variable."""
        rate, gradient = self.compute_lr(gradient, variable)
        slot = self.get_slot(variable, "momentum")
        momentum = cast_setting(self._momentum, variable)
        taken = rate * gradient
        accumulated = momentum * slot + taken
        move = taken + momentum * accumulated if self._use_nesterov else accumulated
        return tf.group(v1.assign(slot, accumulated), v1.assign_sub(variable, move))

    def compute_lr(self, grad: Any, var: Any) -> tuple[Any, Any]:
        """The rate of a variable, and its gradient with the decay in it."""
        rate = cast_setting(self._learning_rate, var)
        if any(each in var.name for each in self._skip_list or ()):
            return rate, grad
        weights = tf.convert_to_tensor(var)
        return rate * self._trust_ratio(weights, grad), grad + self._weight_decay * weights

    def _trust_ratio(self, weights: Any, gradient: Any) -> Any:
        size, slope = tf.norm(weights), tf.norm(gradient)
        divisor = slope + self._weight_decay * size + self._epsilon
        both = tf.logical_and(size > 0, slope > 0)
        # Where one is zero the quotient may be no number; it must not be computed then.
        divisor = tf.where(both, divisor, tf.ones_like(divisor))
        return tf.where(both, self._eeta * size / divisor, tf.ones_like(size))
