"""Relatives of Adam: with Nesterov's momentum, with the largest gradient, with rows by themselves.

With g the gradient, t the step, and m, v from 0, Adam is
  m ← β1 m + (1 - β1) g,  v ← β2 v + (1 - β2) g²
  w ← w - α √(1 - β2^t) / (1 - β1^t) m / (√v + ε)
Source: Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015.
"""

from typing import Any

import tensorflow as tf

from trainer.compat.contrib.opt.elementwise import densify_gradient

v1 = tf.compat.v1


class _AdamBase(tf.compat.v1.train.AdamOptimizer):
    """Adam's settings and slots, in the type of a variable."""

    def _cast_settings(self, variable: Any) -> tuple[Any, ...]:
        """The rate, β1, β2, ε, and β1 and β2 to the power of the step."""
        given = (self._lr_t, self._beta1_t, self._beta2_t, self._epsilon_t)
        powers = self._get_beta_accumulators()
        return tuple(tf.cast(each, variable.dtype.base_dtype) for each in (*given, *powers))

    def _moments(self, variable: Any) -> tuple[Any, Any]:
        return self.get_slot(variable, "m"), self.get_slot(variable, "v")


class _ElementwiseAdam(_AdamBase):
    """One rule for every number of a variable; a sparse gradient is zero elsewhere."""

    def build_update(self, gradient: Any, variable: Any) -> Any:
        raise NotImplementedError

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        return self.build_update(grad, var)

    def _resource_apply_dense(self, grad: Any, var: Any) -> Any:
        return self.build_update(grad, var)

    def _apply_sparse(self, grad: Any, var: Any) -> Any:
        return self.build_update(densify_gradient(grad.values, grad.indices, var), var)

    def _resource_apply_sparse(self, grad: Any, var: Any, indices: Any) -> Any:
        return self.build_update(densify_gradient(grad, indices, var), var)


class NadamOptimizer(_ElementwiseAdam):
    """Adam with Nesterov's momentum: β1 m + (1 - β1) g in the place of m, once m is updated.

    Source: Dozat, "Incorporating Nesterov Momentum into Adam", 2016.
    """

    def build_update(self, gradient: Any, variable: Any) -> Any:
        """The op that updates a variable."""
        rate, beta1, beta2, epsilon, power1, power2 = self._cast_settings(variable)
        m, v = self._moments(variable)
        new_m = beta1 * m + (1 - beta1) * gradient
        new_v = beta2 * v + (1 - beta2) * tf.square(gradient)
        ahead = beta1 * new_m + (1 - beta1) * gradient
        rate *= tf.sqrt(1 - power2) / (1 - power1)
        move = rate * ahead / (tf.sqrt(new_v) + epsilon)
        return tf.group(v1.assign(m, new_m), v1.assign(v, new_v), v1.assign_sub(variable, move))


class AdaMaxOptimizer(_ElementwiseAdam):
    """Adam with the largest of the faded gradients: v ← max(β2 v, |g|).

    w ← w - α / (1 - β1^t) m / (v + ε)
    Source: section 7.1 of Adam's.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "AdaMax",
    ) -> None:
        """See tf.compat.v1.train.AdamOptimizer."""
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name)

    def _get_beta_accumulators(self) -> tuple[Any, ...]:
        # Within the loop of a TPU, too, it is known by the graph that variables are in.
        with tf.init_scope():
            graph = None if tf.executing_eagerly() else v1.get_default_graph()
        return (self._get_non_slot_variable("beta1_power", graph=graph),)

    def _create_slots(self, var_list: Any) -> None:
        first = min(var_list, key=lambda each: each.name)
        self._create_non_slot_variable(
            initial_value=self._beta1, name="beta1_power", colocate_with=first
        )
        for each in var_list:
            self._zeros_slot(each, "m", self._name)
            self._zeros_slot(each, "v", self._name)

    def _finish(self, update_ops: Any, name_scope: Any) -> Any:
        (power,) = self._get_beta_accumulators()
        with tf.control_dependencies(update_ops):
            updated = v1.assign(power, power * self._beta1_t, use_locking=self._use_locking)
        return tf.group(*update_ops, updated, name=name_scope)

    def build_update(self, gradient: Any, variable: Any) -> Any:
        """The op that updates a variable."""
        rate, beta1, beta2, epsilon, power = self._cast_settings(variable)
        m, v = self._moments(variable)
        new_m = beta1 * m + (1 - beta1) * gradient
        new_v = tf.maximum(beta2 * v, tf.abs(gradient))
        move = rate / (1 - power) * new_m / (new_v + epsilon)
        return tf.group(v1.assign(m, new_m), v1.assign(v, new_v), v1.assign_sub(variable, move))


class LazyAdamOptimizer(_AdamBase):
    """Adam in which a sparse gradient leaves the moments of other rows, and them, as they are."""

    def _apply_sparse(self, grad: Any, var: Any) -> Any:
        return self._update_rows(grad.values, var, grad.indices)

    def _resource_apply_sparse(self, grad: Any, var: Any, indices: Any) -> Any:
        return self._update_rows(grad, var, indices)

    def _update_rows(self, gradient: Any, variable: Any, indices: Any) -> Any:
        rate, beta1, beta2, epsilon, power1, power2 = self._cast_settings(variable)
        m, v = self._moments(variable)
        new_m = beta1 * tf.gather(m, indices) + (1 - beta1) * gradient
        new_v = beta2 * tf.gather(v, indices) + (1 - beta2) * tf.square(gradient)
        rate *= tf.sqrt(1 - power2) / (1 - power1)
        move = rate * new_m / (tf.sqrt(new_v) + epsilon)
        return tf.group(
            v1.scatter_update(m, indices, new_m),
            v1.scatter_update(v, indices, new_v),
            v1.scatter_sub(variable, indices, move),
        )
