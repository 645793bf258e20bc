"""An optimizer that keeps moving averages of the variables it trains."""

from typing import Any

import tensorflow as tf

from tpuserve.errors import WrongContext

v1 = tf.compat.v1


class MovingAverageOptimizer(tf.compat.v1.train.Optimizer):
    """Wraps an optimizer: after each step, average ← decay average + (1 - decay) variable.

    `swapping_saver` saves each average in the place of its variable, so that whoever restores the
    checkpoint without it, as evaluation and export do, has the averages.
    """

    def __init__(
        self,
        opt: Any,
        average_decay: float = 0.9999,
        num_updates: Any = None,
        sequential_update: bool = True,
    ) -> None:
        """Wraps an optimizer.

        Args:
          opt: a tf.compat.v1.train.Optimizer.
          average_decay, num_updates: see tf.train.ExponentialMovingAverage.
          sequential_update: whether averages take in variables as they are after the step, not
            at any time.
        """
        super().__init__(use_locking=False, name="MovingAverageOptimizer")
        self._optimizer = opt
        self._average = tf.train.ExponentialMovingAverage(average_decay, num_updates=num_updates)
        self._sequential_update = sequential_update
        self._averaged: dict[str, tuple[Any, Any]] = {}

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """The wrapped optimizer's gradients."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
    ) -> Any:
        """The op that applies gradients and then averages."""
        pairs = list(grads_and_vars)
        step = self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)
        variables = [variable for gradient, variable in pairs if gradient is not None]
        with tf.control_dependencies([step] if self._sequential_update else []):
            averaged = self._average.apply(variables)
        for each in variables:
            self._averaged[each.op.name] = each, self._average.average(each)
        return tf.group(step, averaged)

    def swapping_saver(
        self, var_list: Any = None, name: str = "swapping_saver", **kwargs: Any
    ) -> Any:
        """A tf.compat.v1.train.Saver of the averages in the place of their variables.

        Args:
          var_list: variables, or name → variable; all global ones by default.
          name: of the ops.
          kwargs: further arguments of the saver.

        Raises:
          WrongContext: nothing has been averaged yet.
        """
        if not self._averaged:
            raise WrongContext(
                "swapping_saver was called before there are averages. Call minimize or "
                "apply_gradients first."
            )
        given = v1.global_variables() if var_list is None else var_list
        saved = dict(given) if isinstance(given, dict) else {each.op.name: each for each in given}
        for variable, average in self._averaged.values():
            names = {each.op.name: key for key, each in saved.items()}
            name_of_variable = names.get(variable.op.name)
            name_of_average = names.get(average.op.name)
            if name_of_variable is not None:
                saved[name_of_variable] = average
            if name_of_average is not None:
                saved[name_of_average] = variable
        return v1.train.Saver(saved, name=name, **kwargs)

    def get_slot(self, var: Any, name: str) -> Any:
        """A slot variable of the wrapped optimizer."""
        return self._optimizer.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """The names of the wrapped optimizer's slots."""
        return list(self._optimizer.get_slot_names())

    def variables(self) -> list[Any]:
        """The wrapped optimizer's variables."""
        return list(self._optimizer.variables())
