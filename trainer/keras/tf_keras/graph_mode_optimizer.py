"""The optimizer of a model that was made without eager execution."""

from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tf_keras.src import backend
from tf_keras.src.optimizers.legacy import optimizer_v2
from tf_keras.src.optimizers.schedules.learning_rate_schedule import LearningRateSchedule

from trainer.keras.tf_keras import tf_optimizer


class GraphOptimizerState:
    """What there is to know of it, read from the session of its graph.

    Attributes:
      values: the values of `state`.
    """

    def __init__(self, model: Any) -> None:
        """Reads it, within the graph of the model."""
        self._optimizer = model.optimizer
        variables = state_variables(model)
        read = backend.batch_get_value(list(variables.values()))
        self.values = dict(zip(variables, read, strict=True))
        if tf_optimizer.is_tf_optimizer(self._optimizer):
            own = vars(tf_optimizer.unwrap(self._optimizer)).values()
            given = {id(each): each for each in own if isinstance(each, tf.Variable)}
            self._given = dict(
                zip(given, backend.batch_get_value(list(given.values())), strict=True)
            )
        else:
            # Schedules and functions are asked at each step, not now.
            kept = {
                name: each
                for name, each in self._optimizer._hyper.items()
                if isinstance(each, LearningRateSchedule) or _is_function(each)
            }
            self._config = {**self._optimizer.get_config(), **kept}

    def recreate(self) -> Any:
        """The same with the same settings, and no state yet."""
        if tf_optimizer.is_tf_optimizer(self._optimizer):
            return tf_optimizer.recreate(self._optimizer, lambda each: self._given[id(each)])
        return type(self._optimizer).from_config(dict(self._config))


def unsupported_options(optimizer: Any) -> Iterator[tuple[str, str]]:
    """Options of `trainer.keras.model.unsupported_options` that it has,
    each with where it has it.
    """
    if tf_optimizer.is_tf_optimizer(optimizer):
        yield from tf_optimizer.unsupported_options(optimizer)
        return
    if not isinstance(optimizer, optimizer_v2.OptimizerV2):
        yield "another optimizer", type(optimizer).__name__
        return
    for name, value in optimizer._hyper.items():
        if isinstance(value, tf.Tensor):
            yield "tensor as hyperparameter", f"{name} of {type(optimizer).__name__}"


def state_variables(model: Any) -> dict[tuple[str, int], Any]:
    """What it is kept for → variable, alike for a model and its twin, as far as it is made."""
    optimizer = model.optimizer
    if tf_optimizer.is_tf_optimizer(optimizer):
        trained = getattr(model, "_collected_trainable_weights", None)
        return tf_optimizer.state_variables(
            optimizer, model.trainable_weights if trained is None else trained
        )
    return {("", number): each for number, each in enumerate(optimizer.weights)}


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, tf.Variable)
