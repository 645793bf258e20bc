"""What both kinds of Keras have in common: options that are refused, and words for the others."""

from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

_STEPS = ("train_step", "test_step", "predict_step", "compute_metrics")


def overridden_steps(model: Any, base: type) -> Iterator[tuple[str, str]]:
    """The steps that a model makes itself."""
    for name in _STEPS:
        kind = next(each for each in type(model).__mro__ if name in vars(each))
        if kind.__module__.partition(".")[0] != base.__module__.partition(".")[0]:
            yield name, kind.__name__


def unreduced_losses(losses: Any, not_reduced: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """The losses that are no number."""
    for each in tf.nest.flatten(losses):
        if hasattr(each, "reduction") and each.reduction in not_reduced:
            yield "reduction='none'", type(each).__name__


def unsupported_layer_options(layer: Any, policy: str) -> Iterator[tuple[str, str]]:
    """What of a layer has no place on a TPU."""
    can_be_reset = hasattr(layer, "reset_state") or hasattr(layer, "reset_states")
    if getattr(layer, "stateful", False) is True and can_be_reset:
        yield "stateful", layer.name
    if getattr(layer, "lookup_table", None) is not None:
        yield "lookup table", layer.name
    if policy == "mixed_float16":
        yield "mixed_float16", layer.name
    if getattr(layer, "dynamic", False) is True:
        yield "dynamic", layer.name


def describe_optimizer(optimizer: Any) -> str:
    """An optimizer's name, and its learning rate."""
    rate = getattr(optimizer, "_learning_rate", None)
    if rate is None:
        rate = getattr(optimizer, "_hyper", {}).get("learning_rate")
    read = getattr(rate, "numpy", None)
    if read is not None:
        rate = f"{float(read()):g}"
    elif not isinstance(rate, (int, float)):
        rate = type(rate).__name__
    return f"{type(optimizer).__name__}({rate})"


def describe_ignored_options(jit_compile: Any, steps_per_execution: Any) -> str:
    """What of compile() says how model.fit is to run, and so says nothing here."""
    found = []
    if jit_compile is True:
        found.append("jit_compile (a TPU always compiles, a CPU does not)")
    if int(steps_per_execution or 1) > 1:
        found.append("steps_per_execution (TPUConfig has iterations_per_loop)")
    return ", ".join(found) or "none"


def format_names(value: Any) -> str:
    """The names of losses or metrics."""
    names = [_name(each) for each in tf.nest.flatten(value) if each is not None]
    return ", ".join(names) or "none"


def _name(value: Any) -> str:
    if isinstance(value, str):
        return value
    return str(getattr(value, "name", None) or getattr(value, "__name__", type(value).__name__))
