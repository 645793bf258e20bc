"""LARS: momentum with a separate learning rate for each variable."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib.opt.elementwise import ElementwiseOptimizer, cast_setting

v1 = tf.compat.v1


class LARSOptimizer(ElementwiseOptimizer):
    """Layer-wise adaptive rate scaling (LARS), for large batches.

    Args:
      momentum: factor of the accumulator m in each step; at least 0.
      weight_decay: factor of the variable; the product is added to the gradient.
      epsilon: number added to the divisor in the formula of the trust ratio.
      skip_list: substrings of names of variables, such as "batch_normalization" and "bias".
        These variables use the plain learning rate, and no weight decay.
      use_nesterov: whether to use Nesterov momentum: then w changes by learning_rate * trust *
        (g + weight_decay * w) + momentum * m, with the new m.
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
        if momentum < 0.0:
            raise InvalidSetting(f"LARSOptimizer got momentum={momentum}. Use at least 0.")
        super().__init__(use_locking=False, name=name)
        self._learning_rate = learning_rate
        self._momentum = momentum
        self._weight_decay = weight_decay
        self._eeta = eeta
        self._epsilon = epsilon
        self._skip_list = skip_list
        self._use_nesterov = use_nesterov

    def _create_slots(self, var_list: Any) -> None:
        for variable in var_list:
            self._zeros_slot(variable, "momentum", self._name)

    def build_update(self, gradient: Any, variable: Any) -> Any:
        """Return the op that updates a variable and its momentum."""
        rate, gradient = self.compute_lr(gradient, variable)
        slot = self.get_slot(variable, "momentum")
        momentum = cast_setting(self._momentum, variable)
        scaled_gradient = rate * gradient
        accumulated = momentum * slot + scaled_gradient
        change = scaled_gradient + momentum * accumulated if self._use_nesterov else accumulated
        return tf.group(v1.assign(slot, accumulated), v1.assign_sub(variable, change))

    def compute_lr(self, grad: Any, var: Any) -> tuple[Any, Any]:
        """Scale the learning rate for a variable, and add the weight decay to its gradient.

        Returns:
          The learning rate times the variable's trust ratio, a scalar, and the gradient with weight
          decay. A variable of skip_list gets the plain rate and the plain gradient.
        """
        rate = cast_setting(self._learning_rate, var)
        if any(part in var.name for part in self._skip_list or ()):
            return rate, grad
        weights = tf.convert_to_tensor(var)
        return rate * self._trust_ratio(weights, grad), grad + self._weight_decay * weights

    def _trust_ratio(self, weights: Any, gradient: Any) -> Any:
        """Return the factor of a variable's learning rate, "trust" in the class's docstring."""
        weights_norm, gradient_norm = tf.norm(weights), tf.norm(gradient)
        divisor = gradient_norm + self._weight_decay * weights_norm + self._epsilon
        is_scaled = tf.logical_and(weights_norm > 0, gradient_norm > 0)
        # Replace the divisor by 1 where the quotient is not used: tf.where computes both branches,
        # and a divisor of 0 would make the unused branch NaN.
        divisor = tf.where(is_scaled, divisor, tf.ones_like(divisor))
        return tf.where(is_scaled, self._eeta * weights_norm / divisor, tf.ones_like(weights_norm))
