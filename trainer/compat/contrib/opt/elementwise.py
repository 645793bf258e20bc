"""Base classes for optimizers that apply the same formula to every element of a variable."""

from typing import Any

import tensorflow as tf

v1 = tf.compat.v1


class ElementwiseUpdates:
    """Implements the update methods of tf.compat.v1.train.Optimizer by one method, `build_update`.

    A subclass names this class before the optimizer class among its bases, so that the methods of
    this class override the optimizer's.
    """

    def build_update(self, gradient: Any, variable: Any) -> Any:
        """Return the op that updates a variable; subclasses implement this method."""
        raise NotImplementedError

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        return self.build_update(grad, var)

    def _resource_apply_dense(self, grad: Any, handle: Any) -> Any:
        return self.build_update(grad, handle)

    def _apply_sparse(self, grad: Any, var: Any) -> Any:
        return self.build_update(densify_gradient(grad.values, grad.indices, var), var)

    def _resource_apply_sparse(self, grad: Any, handle: Any, indices: Any) -> Any:
        return self.build_update(densify_gradient(grad, indices, handle), handle)


class ElementwiseOptimizer(ElementwiseUpdates, tf.compat.v1.train.Optimizer):
    """Base class for optimizers that have to implement only `build_update` and `_create_slots`.

    Works with reference variables and with resource variables.
    """


def densify_gradient(values: Any, indices: Any, variable: Any) -> Any:
    """Convert a sparse gradient to a dense one, which is 0 in the rows that the gradient lacks.

    Args:
      values: float [k, ...], the gradients of k of the n rows.
      indices: int [k], the numbers of these k rows.
    """
    shape = tf.shape(variable, out_type=indices.dtype)
    return tf.scatter_nd(indices[:, None], values, shape)


def cast_setting(value: Any, variable: Any) -> Any:
    """Cast a hyperparameter (a number, or a function that returns it) to a variable's dtype."""
    setting = tf.convert_to_tensor(value() if callable(value) else value)
    return tf.cast(setting, variable.dtype.base_dtype)
