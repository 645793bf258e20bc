"""Variants of Adam: Nadam, AdaMax, and lazy Adam for sparse gradients."""

from typing import Any

import tensorflow as tf

from trainer.compat.contrib.opt.elementwise import ElementwiseUpdates

v1 = tf.compat.v1


class _AdamBase(tf.compat.v1.train.AdamOptimizer):
    """Base class of Adam's variants, which gives them the hyperparameters and moments of Adam."""

    def _cast_settings(self, variable: Any) -> tuple[Any, ...]:
        settings = (self._lr_t, self._beta1_t, self._beta2_t, self._epsilon_t)
        powers = self._get_beta_accumulators()
        return tuple(tf.cast(value, variable.dtype.base_dtype) for value in (*settings, *powers))

    def _moments(self, variable: Any) -> tuple[Any, Any]:
        """Return the moments of a variable's gradients: the slot variables "m" and "v"."""
        return self.get_slot(variable, "m"), self.get_slot(variable, "v")


class _RowUpdates(_AdamBase):
    """Base class for variants of Adam in which a sparse gradient changes only the rows that it has.

    The other rows, and their moments, stay unchanged.
    """

    def _compute_step(self, gradient: Any, variable: Any, m: Any, v: Any) -> tuple[Any, Any, Any]:
        raise NotImplementedError

    def _apply_sparse(self, grad: Any, var: Any) -> Any:
        return self._update_rows(grad.values, var, grad.indices)

    def _resource_apply_sparse(self, grad: Any, var: Any, indices: Any) -> Any:
        return self._update_rows(grad, var, indices)

    def _update_rows(self, gradient: Any, variable: Any, indices: Any) -> Any:
        m, v = self._moments(variable)
        new_m, new_v, change = self._compute_step(
            gradient, variable, tf.gather(m, indices), tf.gather(v, indices)
        )
        return tf.group(
            v1.scatter_update(m, indices, new_m),
            v1.scatter_update(v, indices, new_v),
            v1.scatter_sub(variable, indices, change),
        )


class _ElementwiseAdam(ElementwiseUpdates, _AdamBase):
    """Base class for variants of Adam that update every element by a dense gradient."""


class NadamOptimizer(_ElementwiseAdam):
    """Adam with Nesterov momentum.

    Adam first updates the moment m by the gradient g, and then changes the variable in proportion
    to m.
    """

    def build_update(self, gradient: Any, variable: Any) -> Any:
        """Return the op that updates a variable and its moments by a dense gradient."""
        rate, beta1, beta2, epsilon, power1, power2 = self._cast_settings(variable)
        m, v = self._moments(variable)
        new_m = beta1 * m + (1 - beta1) * gradient
        new_v = beta2 * v + (1 - beta2) * tf.square(gradient)
        nesterov_m = beta1 * new_m + (1 - beta1) * gradient
        rate *= tf.sqrt(1 - power2) / (1 - power1)
        change = rate * nesterov_m / (tf.sqrt(new_v) + epsilon)
        return tf.group(v1.assign(m, new_m), v1.assign(v, new_v), v1.assign_sub(variable, change))


class AdaMaxOptimizer(_RowUpdates, _ElementwiseAdam):
    """Adam with an infinity norm of the gradients in place of their second moment.

    A sparse gradient changes only the rows that it has.
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
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name)

    def _get_beta_accumulators(self) -> tuple[Any, ...]:
        # In the outermost graph, look up the variable that holds β1^t. Inside a training loop on a
        # TPU, the default graph is that of the loop's body, which does not contain the variables.
        with tf.init_scope():
            graph = None if tf.executing_eagerly() else v1.get_default_graph()
        return (self._get_non_slot_variable("beta1_power", graph=graph),)

    def _create_slots(self, var_list: Any) -> None:
        first = min(var_list, key=lambda variable: variable.name)
        self._create_non_slot_variable(
            initial_value=self._beta1, name="beta1_power", colocate_with=first
        )
        for variable in var_list:
            self._zeros_slot(variable, "m", self._name)
            self._zeros_slot(variable, "v", self._name)

    def _finish(self, update_ops: Any, name_scope: Any) -> Any:
        (power,) = self._get_beta_accumulators()
        with tf.control_dependencies(update_ops):
            updated = v1.assign(power, power * self._beta1_t, use_locking=self._use_locking)
        return tf.group(*update_ops, updated, name=name_scope)

    def build_update(self, gradient: Any, variable: Any) -> Any:
        """Return the op that updates a variable and its moments by a dense gradient."""
        m, v = self._moments(variable)
        new_m, new_v, change = self._compute_step(gradient, variable, m, v)
        return tf.group(v1.assign(m, new_m), v1.assign(v, new_v), v1.assign_sub(variable, change))

    def _compute_step(self, gradient: Any, variable: Any, m: Any, v: Any) -> tuple[Any, Any, Any]:
        rate, beta1, beta2, epsilon, power = self._cast_settings(variable)
        new_m = beta1 * m + (1 - beta1) * gradient
        new_v = tf.maximum(beta2 * v, tf.abs(gradient))
        return new_m, new_v, rate / (1 - power) * new_m / (new_v + epsilon)


class LazyAdamOptimizer(_RowUpdates):
    """Adam for sparse gradients: rows without a gradient, and their moments, stay unchanged."""

    def _compute_step(self, gradient: Any, variable: Any, m: Any, v: Any) -> tuple[Any, Any, Any]:
        rate, beta1, beta2, epsilon, power1, power2 = self._cast_settings(variable)
        new_m = beta1 * m + (1 - beta1) * gradient
        new_v = beta2 * v + (1 - beta2) * tf.square(gradient)
        rate *= tf.sqrt(1 - power2) / (1 - power1)
        return new_m, new_v, rate * new_m / (tf.sqrt(new_v) + epsilon)
