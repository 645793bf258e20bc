"""Copies the optimizer of a tf_keras model that was built without eager execution."""

from collections.abc import Iterator
from typing import Any

import tensorflow as tf
import tf_keras

from trainer.keras.tf_keras import tf_optimizer
from trainer.keras_internals import find_private_attribute, get_private_attribute


class GraphOptimizerState:
    """The settings and the state of a model's optimizer, read from the session of its graph.

    Attributes:
      values: key of a variable, as in the result of `state_variables` → the variable's value, an
        array.
    """

    def __init__(self, model: Any) -> None:
        self._optimizer = model.optimizer
        variables = state_variables(model)
        values = tf_keras.backend.batch_get_value(list(variables.values()))
        self.values = dict(zip(variables, values, strict=True))
        if tf_optimizer.is_tf_optimizer(self._optimizer):
            attributes = vars(tf_optimizer.unwrap(self._optimizer)).values()
            variables_by_id = {
                id(value): value for value in attributes if isinstance(value, tf.Variable)
            }
            self._attribute_values = dict(
                zip(
                    variables_by_id,
                    tf_keras.backend.batch_get_value(list(variables_by_id.values())),
                    strict=True,
                )
            )
        else:
            # If a hyperparameter is a schedule or a function, add it unchanged. get_config would
            # replace a function by its current value, and a schedule by its configuration.
            schedule_class = tf_keras.optimizers.schedules.LearningRateSchedule
            hyperparameters = get_private_attribute(self._optimizer, "_hyper")
            dynamic = {
                name: value
                for name, value in hyperparameters.items()
                if isinstance(value, schedule_class) or _is_function(value)
            }
            self._config = {**self._optimizer.get_config(), **dynamic}

    def recreate(self) -> Any:
        """Create an eager copy of the model's optimizer, with its settings but not its state."""
        if tf_optimizer.is_tf_optimizer(self._optimizer):
            return tf_optimizer.recreate(
                self._optimizer, lambda variable: self._attribute_values[id(variable)]
            )
        return type(self._optimizer).from_config(dict(self._config))


def unsupported_options(optimizer: Any) -> Iterator[tuple[str, str]]:
    """Find the options of an optimizer that an estimator does not support."""
    if tf_optimizer.is_tf_optimizer(optimizer):
        yield from tf_optimizer.unsupported_options(optimizer)
        return
    if not isinstance(optimizer, tf_keras.optimizers.legacy.Optimizer):
        yield "another optimizer", type(optimizer).__name__
        return
    for name, value in get_private_attribute(optimizer, "_hyper").items():
        if isinstance(value, tf.Tensor):
            yield "tensor as hyperparameter", f"{name} of {type(optimizer).__name__}"


def state_variables(model: Any) -> dict[tuple[str, int], Any]:
    """Return the existing variables of a model's optimizer, with keys that identify them.

    A model and its clone have the same keys, so that values can be copied between them.

    Returns:
      ("", index in optimizer.weights) → variable. For an optimizer of tf.compat.v1.train, the
      result of `tf_optimizer.state_variables`.
    """
    optimizer = model.optimizer
    if tf_optimizer.is_tf_optimizer(optimizer):
        trained = find_private_attribute(model, "_collected_trainable_weights")
        return tf_optimizer.state_variables(
            optimizer, model.trainable_weights if trained is None else trained
        )
    return {("", number): variable for number, variable in enumerate(optimizer.weights)}


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, tf.Variable)
