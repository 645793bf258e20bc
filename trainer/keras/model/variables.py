"""The variables of a Keras model and of its optimizer, under the names that a checkpoint has."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.keras.model.adapter import KerasAdapter
from trainer.keras.model.tracing import eager_mode


@dataclass(frozen=True)
class CheckpointVariable:
    """One variable.

    Attributes:
      name: in checkpoints.
      variable: Keras's own, an eager tf.Variable.
      is_trained: whether gradients are made for it.
      is_slot: whether it is the optimizer's.
    """

    name: str
    variable: Any
    is_trained: bool = False
    is_slot: bool = False

    @property
    def value(self) -> Any:
        """What Keras has in it now, as an array."""
        with eager_mode():
            return self.variable.numpy()


def collect_variables(adapter: KerasAdapter, model: Any) -> list[CheckpointVariable]:
    """The weights of a model and, where it is compiled, of its optimizer.

    NameMaps do not depend on how many layers a program has made before: what Keras has numbered is
    numbered anew, from the model's first layer on. So a checkpoint fits the model that another
    process, or another cell of a notebook, makes by the same lines.
    """
    with eager_mode():
        adapter.build_optimizer(model)
        own = adapter.model_variables(model)
        slots = adapter.optimizer_variables(model)
    numbered = _LayerNumbers(
        [_name_and_default_name(each) for each in _named_objects(adapter, model)]
    )
    taken: set[str] = set()
    weights = [
        CheckpointVariable(
            make_unique(numbered.renumber(path), taken), variable, is_trained=is_trained
        )
        for path, variable, is_trained in own
    ]
    weights += [
        CheckpointVariable(
            make_unique(f"optimizer/{numbered.renumber(path)}", taken), variable, is_slot=True
        )
        for path, variable in slots
    ]
    return weights


def moving_averages(
    adapter: KerasAdapter, model: Any, weights: Iterable[CheckpointVariable]
) -> dict[str, CheckpointVariable]:
    """Name of a trained weight → the moving average that stands for it after training."""
    weights = list(weights)
    by_variable = {id(each.variable.handle): each for each in weights}
    averages = adapter.moving_averages(model)
    trained = [each for each in weights if each.is_trained]
    return {
        each.name: by_variable[id(average.handle)]
        for each, average in zip(trained, averages, strict=False)
    }


def initial_values(
    adapter: KerasAdapter, model: Any, weights: Iterable[CheckpointVariable]
) -> dict[str, Any]:
    """Name → array: what a training starts from."""
    weights = list(weights)
    found = {each.name: each.value for each in weights}
    with eager_mode():
        has_begun = int(adapter.iterations(model).numpy()) > 0
    if not has_begun:
        # An average that is not begun has no value of its own; the first step sets it.
        for name, average in moving_averages(adapter, model, weights).items():
            found[average.name] = found[name].astype(found[average.name].dtype)
    return found


def create_graph_variable(weight: CheckpointVariable, initial: Any) -> Any:
    """The weight as a variable of the default graph.

    Args:
      initial: the value that it starts from where no checkpoint is restored.
    """
    variable = weight.variable
    return tf.compat.v1.get_variable(
        weight.name,
        shape=variable.shape,
        dtype=variable.dtype,
        initializer=tf.compat.v1.zeros_initializer()
        if initial is None
        else tf.compat.v1.constant_initializer(initial),
        trainable=weight.is_trained,
        use_resource=True,
    )


def create_local_variable(name: str, variable: Any, initial: Any) -> Any:
    """A variable of the default graph that no checkpoint has, as that of a metric."""
    return tf.compat.v1.get_variable(
        name,
        shape=variable.shape,
        dtype=variable.dtype,
        initializer=tf.compat.v1.constant_initializer(np.asarray(initial)),
        trainable=False,
        collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
        use_resource=True,
    )


class _LayerNumbers:
    """Paths with the numbers that Keras gave to layers without a name, from 0 on."""

    def __init__(self, layers: Iterable[tuple[str, str]]) -> None:
        self._new: dict[str, str] = {}
        counts: dict[str, int] = {}
        for name, kind in layers:
            if name in self._new or not re.fullmatch(rf"{re.escape(kind)}(_\d+)?", name):
                continue
            number = counts.get(kind, 0)
            counts[kind] = number + 1
            self._new[name] = f"{kind}_{number}" if number else kind

    def renumber(self, path: str) -> str:
        return "/".join(self._new.get(each, each) for each in path.split("/"))


def _named_objects(adapter: KerasAdapter, model: Any) -> list[Any]:
    # The optimizer is numbered as well, where there is one of its own in a process.
    with eager_mode():
        return [*adapter.layers(model), *([model.optimizer] if model.optimizer else [])]


def _name_and_default_name(layer: Any) -> tuple[str, str]:
    """A layer's name, and the one that Keras gives to the first of its class."""
    name = str(getattr(layer, "name", None) or getattr(layer, "_name", ""))
    kind = type(layer).__name__
    kind = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", re.sub(r"\W+", "", kind))
    return name, re.sub(r"([a-z])([A-Z])", r"\1_\2", kind).lower()


def make_unique(name: str, taken: set[str]) -> str:
    """The name, with a number behind it where it is taken; takes it."""
    candidate, number = name, 0
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    taken.add(candidate)
    return candidate
