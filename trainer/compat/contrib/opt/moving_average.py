"""An optimizer that keeps moving averages of the variables that it trains."""

from typing import Any

import tensorflow as tf

from tpuserve.errors import WrongContext

v1 = tf.compat.v1


class MovingAverageOptimizer(tf.compat.v1.train.Optimizer):
    """Wraps an optimizer, and keeps a moving average of each variable that the optimizer trains.

    After each step, average ← decay * average + (1 - decay) * variable. `swapping_saver` returns a
    saver that stores each average under the name of its variable.

    Args:
      sequential_update: whether to update the averages only after the variables. If False, the
        update of an average may use the variable's value from before the training step.
    """

    def __init__(
        self,
        opt: Any,
        average_decay: float = 0.9999,
        num_updates: Any = None,
        sequential_update: bool = True,
    ) -> None:
        super().__init__(use_locking=False, name="MovingAverageOptimizer")
        self._optimizer = opt
        self._average = tf.train.ExponentialMovingAverage(average_decay, num_updates=num_updates)
        self._sequential_update = sequential_update
        self._averaged: dict[str, tuple[Any, Any]] = {}

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Return the (gradient, variable) pairs that the wrapped optimizer computes."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
    ) -> Any:
        """Return the op that applies gradients, and updates the moving averages.

        The arguments are those of `tf.compat.v1.train.Optimizer.apply_gradients`.
        """
        pairs = list(grads_and_vars)
        step = self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)
        variables = [variable for gradient, variable in pairs if gradient is not None]
        with tf.control_dependencies([step] if self._sequential_update else []):
            update = self._average.apply(variables)
        for variable in variables:
            self._averaged[variable.op.name] = variable, self._average.average(variable)
        return tf.group(step, update)

    def swapping_saver(
        self, var_list: Any = None, name: str = "swapping_saver", **kwargs: Any
    ) -> Any:
        """Return a Saver that swaps the names of each variable and of its moving average.

        The Saver saves a moving average under the name of its variable, and the variable under
        the name of the moving average.

        Args:
          var_list: the variables to save, a list or a dict of name → variable; all global
            variables by default.
          kwargs: further keyword arguments of tf.compat.v1.train.Saver.

        Raises:
          WrongContext: `apply_gradients` has not been called yet.
        """
        if not self._averaged:
            raise WrongContext(
                "swapping_saver was called before the averages were created. Call minimize or "
                "apply_gradients first."
            )
        if var_list is None:
            var_list = v1.global_variables()
        if isinstance(var_list, dict):
            saved = dict(var_list)
        else:
            saved = {variable.op.name: variable for variable in var_list}
        for variable, average in self._averaged.values():
            keys = {saved_variable.op.name: key for key, saved_variable in saved.items()}
            key_of_variable = keys.get(variable.op.name)
            key_of_average = keys.get(average.op.name)
            if key_of_variable is not None:
                saved[key_of_variable] = average
            if key_of_average is not None:
                saved[key_of_average] = variable
        return v1.train.Saver(saved, name=name, **kwargs)

    def get_slot(self, var: Any, name: str) -> Any:
        """Return a slot variable of the wrapped optimizer."""
        return self._optimizer.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Return the names of the wrapped optimizer's slots."""
        return list(self._optimizer.get_slot_names())

    def variables(self) -> list[Any]:
        """Return the wrapped optimizer's variables."""
        return list(self._optimizer.variables())
