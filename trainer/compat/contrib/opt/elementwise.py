"""Optimizers that are one rule for every number of a variable, given its gradient."""

from typing import Any

import tensorflow as tf

v1 = tf.compat.v1


class ElementwiseOptimizer(tf.compat.v1.train.Optimizer):
    """Applies `build_update` to each variable, of either kind, with dense gradients or sparse.

    A sparse gradient is taken for a dense one that is zero elsewhere.
    """

    def build_update(self, gradient: Any, variable: Any) -> Any:
        """The op that updates a variable."""
        raise NotImplementedError

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        return self.build_update(grad, var)

    def _resource_apply_dense(self, grad: Any, handle: Any) -> Any:
        return self.build_update(grad, handle)

    def _apply_sparse(self, grad: Any, var: Any) -> Any:
        return self.build_update(densify_gradient(grad.values, grad.indices, var), var)

    def _resource_apply_sparse(self, grad: Any, handle: Any, indices: Any) -> Any:
        return self.build_update(densify_gradient(grad, indices, handle), handle)


def densify_gradient(values: Any, indices: Any, variable: Any) -> Any:
    """A gradient of some rows as one of the whole variable."""
    shape = tf.shape(variable, out_type=indices.dtype)
    return tf.scatter_nd(indices[:, None], values, shape)


def cast_setting(value: Any, variable: Any) -> Any:
    """A setting, which may be a function without arguments, in a variable's type."""
    found = tf.convert_to_tensor(value() if callable(value) else value)
    return tf.cast(found, variable.dtype.base_dtype)
