"""The variables of a Keras model and of its optimizer, with their names in checkpoints."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.checkpoints.warm_start import WarmStartSettings, apply_warm_start
from trainer.keras.model.adapter import KerasAdapter
from trainer.keras.model.tracing import eager_mode
from trainer.keras_internals import find_private_attribute


@dataclass(frozen=True)
class CheckpointVariable:
    """A variable of a Keras model or of its optimizer."""

    name: str
    keras_variable: Any
    is_trained: bool = False
    is_slot: bool = False


def collect_variables(adapter: KerasAdapter, model: Any) -> list[CheckpointVariable]:
    """Collect the variables of a compiled model and of its optimizer, with names for checkpoints.

    Keras counts the layers of the whole process, and puts the numbers into the names of layers and
    variables, such as "dense_7".
    """
    with eager_mode():
        adapter.build_optimizer(model)
        model_variables = adapter.model_variables(model)
        slots = adapter.optimizer_variables(model)
    numbers = _LayerNumbers(
        [_name_and_default_name(layer) for layer in _named_objects(adapter, model)]
    )
    taken: set[str] = set()
    collected = [
        CheckpointVariable(
            make_unique(numbers.renumber(path), taken), variable, is_trained=is_trained
        )
        for path, variable, is_trained in model_variables
    ]
    collected += [
        CheckpointVariable(
            make_unique(f"optimizer/{numbers.renumber(path)}", taken), variable, is_slot=True
        )
        for path, variable in slots
    ]
    return collected


def moving_averages(
    adapter: KerasAdapter, model: Any, variables: Iterable[CheckpointVariable]
) -> dict[str, CheckpointVariable]:
    """Return the moving averages that replace the trainable variables after training.

    Returns:
      Name of a trainable variable → the variable with its moving average. Empty if the optimizer
      keeps no averages.
    """
    variables = list(variables)
    by_handle = {id(variable.keras_variable.handle): variable for variable in variables}
    averages = adapter.moving_averages(model)
    trained = [variable for variable in variables if variable.is_trained]
    return {
        variable.name: by_handle[id(average.handle)]
        for variable, average in zip(trained, averages, strict=False)
    }


def initial_values(
    adapter: KerasAdapter, model: Any, variables: Iterable[CheckpointVariable]
) -> dict[str, Any]:
    """Return the values from which training starts.

    Returns:
      Name of a variable → array with the shape and the dtype of the variable.
    """
    variables = list(variables)
    with eager_mode():
        values = {variable.name: variable.keras_variable.numpy() for variable in variables}
        has_trained = int(adapter.iterations(model).numpy()) > 0
    if not has_trained:
        # Initialise each moving average with the value of its weight, because Keras sets the
        # average only in the optimizer's first step.
        for name, average in moving_averages(adapter, model, variables).items():
            values[average.name] = values[name].astype(values[average.name].dtype)
    return values


def warm_start_values(
    adapter: KerasAdapter,
    model: Any,
    variables: Iterable[CheckpointVariable],
    values: Mapping[str, Any],
    settings: WarmStartSettings,
) -> dict[str, Any]:
    """Replace the values that a warm start takes from another checkpoint.

    If a weight is replaced, but not its moving average, the average becomes equal to the weight.

    Args:
      values: name of a variable → initial value, an array. A name without a variable, such as that
        of the global step, stands for a variable that is not trained.
    """
    variables = list(variables)
    trained = {variable.name for variable in variables if variable.is_trained}
    with tf.Graph().as_default():
        feeds, created = {}, {}
        for name, value in values.items():
            # Feed the value, because a graph cannot hold constants of more than 2 GiB.
            initial = tf.compat.v1.placeholder(value.dtype, value.shape)
            feeds[initial] = value
            created[name] = tf.compat.v1.get_variable(
                name, initializer=initial, trainable=name in trained, use_resource=True
            )
        apply_warm_start(settings)
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer(), feeds)
            started: dict[str, Any] = session.run(created)
    for name, average in moving_averages(adapter, model, variables).items():
        is_weight_replaced = not np.array_equal(started[name], values[name])
        if is_weight_replaced and np.array_equal(started[average.name], values[average.name]):
            started[average.name] = started[name].astype(started[average.name].dtype)
    return started


def create_graph_variable(variable: CheckpointVariable, initial: Any) -> Any:
    """Create a variable in the default graph that replaces a Keras variable in an estimator's step.

    Checkpoints contain the variable.

    Args:
      initial: the initial value if there is no checkpoint, an array; None for zeros.
    """
    keras_variable = variable.keras_variable
    return tf.compat.v1.get_variable(
        variable.name,
        shape=keras_variable.shape,
        dtype=keras_variable.dtype,
        initializer=tf.compat.v1.zeros_initializer()
        if initial is None
        else tf.compat.v1.constant_initializer(initial),
        trainable=variable.is_trained,
        use_resource=True,
    )


def create_local_variable(name: str, keras_variable: Any, initial: Any) -> Any:
    """Create a variable in the default graph that replaces a variable of a Keras metric.

    Checkpoints do not contain the variable.
    """
    return tf.compat.v1.get_variable(
        name,
        shape=keras_variable.shape,
        dtype=keras_variable.dtype,
        initializer=tf.compat.v1.constant_initializer(np.asarray(initial)),
        trainable=False,
        collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
        use_resource=True,
    )


class _LayerNumbers:
    """Renumbers from 0 the layers of a model that Keras has named by their class and a number."""

    def __init__(self, layers: Iterable[tuple[str, str]]) -> None:
        self._new_names: dict[str, str] = {}
        counts: dict[str, int] = {}
        for name, default in layers:
            is_default = re.fullmatch(rf"{re.escape(default)}(_\d+)?", name)
            if name in self._new_names or not is_default:
                continue
            number = counts.get(default, 0)
            counts[default] = number + 1
            self._new_names[name] = f"{default}_{number}" if number else default

    def renumber(self, path: str) -> str:
        return "/".join(self._new_names.get(name, name) for name in path.split("/"))


def _named_objects(adapter: KerasAdapter, model: Any) -> list[Any]:
    with eager_mode():
        return [*adapter.layers(model), *([model.optimizer] if model.optimizer else [])]


def _name_and_default_name(layer: Any) -> tuple[str, str]:
    """Return (a layer's name, the name that Keras gives to the first layer of the same class)."""
    name = str(getattr(layer, "name", None) or find_private_attribute(layer, "_name", ""))
    kind = re.sub(r"\W+", "", type(layer).__name__)
    snake_case = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", kind)
    return name, re.sub(r"([a-z])([A-Z])", r"\1_\2", snake_case).lower()


def make_unique(name: str, taken: set[str]) -> str:
    """Return a unique name, and add it to the names in use."""
    candidate, number = name, 0
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    taken.add(candidate)
    return candidate
