"""Optimizers with decoupled weight decay, which is not part of the loss or of its gradient."""

from typing import Any

import tensorflow as tf

v1 = tf.compat.v1


class DecoupledWeightDecayExtension:
    """Mixin that adds the weight decay w ← w - weight_decay * w to each step of an optimizer.

    A subclass names this class before the optimizer class among its bases, so that the methods of
    this class override the optimizer's. The decay of a step precedes the optimizer's update.

    Args:
      weight_decay: a float, a scalar tensor, or a function without arguments that returns one.
    """

    def __init__(self, weight_decay: Any, *args: Any, **kwargs: Any) -> None:
        self._decayed_ids: set[int] | None = None
        self._weight_decay = weight_decay
        super().__init__(*args, **kwargs)

    def minimize(self, loss: Any, *args: Any, decay_var_list: Any = None, **kwargs: Any) -> Any:
        """Return the op of a training step, which decays variables and minimizes a loss."""
        self._set_decayed_variables(decay_var_list)
        return super().minimize(loss, *args, **kwargs)  # type: ignore[misc]

    def apply_gradients(
        self,
        grads_and_vars: Any,
        global_step: Any = None,
        name: str | None = None,
        decay_var_list: Any = None,
    ) -> Any:
        """Return the op that decays variables and applies gradients."""
        self._set_decayed_variables(decay_var_list)
        return super().apply_gradients(grads_and_vars, global_step, name)  # type: ignore[misc]

    def _set_decayed_variables(self, variables: Any) -> None:
        if variables is not None:
            self._decayed_ids = {id(variable) for variable in variables}

    def _cast_weight_decay(self, variable: Any) -> Any:
        if self._decayed_ids is not None and id(variable) not in self._decayed_ids:
            return None
        decay = self._weight_decay
        return tf.cast(decay() if callable(decay) else decay, variable.dtype.base_dtype)

    def _decay_ops(self, variable: Any, gradient: Any) -> list[Any]:
        decay = self._cast_weight_decay(variable)
        if decay is None:
            return []
        # Let the decay wait for the gradient: until the gradient has been computed, the model may
        # still read the variable, and must not read the decayed value.
        with tf.control_dependencies([gradient]):
            return [v1.assign_sub(variable, decay * tf.convert_to_tensor(variable))]

    def _decay_row_ops(self, variable: Any, gradient: Any, indices: Any) -> list[Any]:
        decay = self._cast_weight_decay(variable)
        if decay is None:
            return []
        with tf.control_dependencies([gradient]):
            rows = tf.gather(variable, indices)
            return [v1.scatter_sub(variable, indices, decay * rows)]

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        with tf.control_dependencies(self._decay_ops(var, grad)):
            return super()._apply_dense(grad, var)  # type: ignore[misc]

    def _resource_apply_dense(self, grad: Any, var: Any) -> Any:
        with tf.control_dependencies(self._decay_ops(var, grad)):
            return super()._resource_apply_dense(grad, var)  # type: ignore[misc]

    def _apply_sparse(self, grad: Any, var: Any) -> Any:
        with tf.control_dependencies(self._decay_row_ops(var, grad.values, grad.indices)):
            return super()._apply_sparse(grad, var)  # type: ignore[misc]

    def _resource_apply_sparse(self, grad: Any, var: Any, indices: Any) -> Any:
        with tf.control_dependencies(self._decay_row_ops(var, grad, indices)):
            return super()._resource_apply_sparse(grad, var, indices)  # type: ignore[misc]


def extend_with_decoupled_weight_decay(base_optimizer: type) -> type:
    """Return a subclass that adds decoupled weight decay to an optimizer class.

    The constructor of the subclass takes weight_decay as an additional first argument.
    """
    return type(
        "OptimizerWithDecoupledWeightDecay",
        (DecoupledWeightDecayExtension, base_optimizer),
        {"__doc__": f"{base_optimizer.__name__} with decoupled weight decay."},
    )


class MomentumWOptimizer(DecoupledWeightDecayExtension, tf.compat.v1.train.MomentumOptimizer):
    """Momentum with decoupled weight decay."""

    def __init__(
        self,
        weight_decay: Any,
        learning_rate: Any,
        momentum: Any,
        use_locking: bool = False,
        name: str = "MomentumW",
        use_nesterov: bool = False,
    ) -> None:
        super().__init__(
            weight_decay,
            learning_rate=learning_rate,
            momentum=momentum,
            use_locking=use_locking,
            name=name,
            use_nesterov=use_nesterov,
        )


class AdamWOptimizer(DecoupledWeightDecayExtension, tf.compat.v1.train.AdamOptimizer):
    """Adam with decoupled weight decay."""

    def __init__(
        self,
        weight_decay: Any,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "AdamW",
    ) -> None:
        super().__init__(
            weight_decay,
            learning_rate=learning_rate,
            beta1=beta1,
            beta2=beta2,
            epsilon=epsilon,
            use_locking=use_locking,
            name=name,
        )
