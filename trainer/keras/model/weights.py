"""The variables of a Keras model and of its optimizer, under the names that a checkpoint has."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.keras.model.adapter import Family
from trainer.keras.model.tracing import eagerly


@dataclass(frozen=True)
class Weight:
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
        with eagerly():
            return self.variable.numpy()


def of_model(family: Family, model: Any) -> list[Weight]:
    """The weights of a model and, where it is compiled, of its optimizer.

    Names do not depend on how many layers a program has made before: what Keras has numbered is
    numbered anew, from the model's first layer on. So a checkpoint fits the model that another
    process, or another cell of a notebook, makes by the same lines.
    """
    with eagerly():
        family.build_optimizer(model)
        own = family.model_variables(model)
        slots = family.optimizer_variables(model)
    numbered = _Numbered([_snake(each) for each in _names(family, model)])
    taken: set[str] = set()
    weights = [
        Weight(unique(numbered.anew(path), taken), variable, is_trained=is_trained)
        for path, variable, is_trained in own
    ]
    weights += [
        Weight(unique(f"optimizer/{numbered.anew(path)}", taken), variable, is_slot=True)
        for path, variable in slots
    ]
    return weights


def averaged(family: Family, model: Any, weights: Iterable[Weight]) -> dict[str, Weight]:
    """Name of a trained weight → the moving average that stands for it after training."""
    weights = list(weights)
    by_variable = {id(each.variable.handle): each for each in weights}
    averages = family.averages(model)
    trained = [each for each in weights if each.is_trained]
    return {
        each.name: by_variable[id(average.handle)]
        for each, average in zip(trained, averages, strict=False)
    }


def values(family: Family, model: Any, weights: Iterable[Weight]) -> dict[str, Any]:
    """Name → array: what a training starts from."""
    weights = list(weights)
    found = {each.name: each.value for each in weights}
    with eagerly():
        has_begun = int(family.iterations(model).numpy()) > 0
    if not has_begun:
        # An average that is not begun has no value of its own; the first step sets it.
        for name, average in averaged(family, model, weights).items():
            found[average.name] = found[name].astype(found[average.name].dtype)
    return found


def in_graph(weight: Weight, initial: Any) -> Any:
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


def local(name: str, variable: Any, initial: Any) -> Any:
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


class _Numbered:
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

    def anew(self, path: str) -> str:
        return "/".join(self._new.get(each, each) for each in path.split("/"))


def _names(family: Family, model: Any) -> list[Any]:
    # The optimizer is numbered as well, where there is one of its own in a process.
    with eagerly():
        return [*family.layers(model), *([model.optimizer] if model.optimizer else [])]


def _snake(layer: Any) -> tuple[str, str]:
    """A layer's name, and the one that Keras gives to the first of its class."""
    name = str(getattr(layer, "name", None) or getattr(layer, "_name", ""))
    kind = type(layer).__name__
    kind = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", re.sub(r"\W+", "", kind))
    return name, re.sub(r"([a-z])([A-Z])", r"\1_\2", kind).lower()


def unique(name: str, taken: set[str]) -> str:
    """The name, with a number behind it where it is taken; takes it."""
    candidate, number = name, 0
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    taken.add(candidate)
    return candidate
