"""Checks and descriptions of model options that are the same for Keras 3 and for tf_keras."""

from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

_STEP_METHODS = ("train_step", "test_step", "predict_step", "compute_metrics")


def overridden_steps(model: Any, base: type) -> Iterator[tuple[str, str]]:
    """Find the step methods, such as train_step, that a model's own class overrides.

    Args:
      model: the Keras model.
      base: the class Model of the Keras that the model belongs to.

    Yields:
      The name of an overridden method, which is a key of `UNSUPPORTED_OPTIONS`, and the class that
        overrides the method.
    """
    for name in _STEP_METHODS:
        owner = next(kind for kind in type(model).__mro__ if name in vars(kind))
        if owner.__module__.partition(".")[0] != base.__module__.partition(".")[0]:
            yield name, owner.__name__


def unreduced_losses(losses: Any, no_reduction: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """Find the losses of compile() that return a loss per row and not one number.

    Args:
      losses: a loss or a nest of losses.
      no_reduction: the values of a loss's `reduction` that mean "do not reduce".

    Yields:
      A key of `UNSUPPORTED_OPTIONS`, and the name of the loss's class.
    """
    for loss in tf.nest.flatten(losses):
        if hasattr(loss, "reduction") and loss.reduction in no_reduction:
            yield "reduction='none'", type(loss).__name__


def unsupported_layer_options(layer: Any, dtype_policy: str) -> Iterator[tuple[str, str]]:
    """Find the options of a layer that a TPU does not support.

    Args:
      layer: a Keras layer.
      dtype_policy: the name of the layer's mixed-precision policy.

    Yields:
      A key of `UNSUPPORTED_OPTIONS`, and the name of the layer.
    """
    can_reset_state = hasattr(layer, "reset_state") or hasattr(layer, "reset_states")
    if getattr(layer, "stateful", False) is True and can_reset_state:
        yield "stateful", layer.name
    if getattr(layer, "lookup_table", None) is not None:
        yield "lookup table", layer.name
    if dtype_policy == "mixed_float16":
        yield "mixed_float16", layer.name
    if getattr(layer, "dynamic", False) is True:
        yield "dynamic", layer.name


def describe_optimizer(optimizer: Any) -> str:
    """Return an optimizer's class and its learning rate: "SGD(0.01)", "Adam(CosineDecay)"."""
    rate = getattr(optimizer, "_learning_rate", None)
    if rate is None:
        rate = getattr(optimizer, "_hyper", {}).get("learning_rate")
    read_value = getattr(rate, "numpy", None)
    if read_value is not None:
        rate = f"{float(read_value()):g}"
    elif not isinstance(rate, (int, float)):
        rate = type(rate).__name__
    return f"{type(optimizer).__name__}({rate})"


def describe_ignored_options(jit_compile: Any, steps_per_execution: Any) -> str:
    """Describe the arguments of compile() that control model.fit and not an estimator.

    Args:
      jit_compile: the argument that was passed to compile().
      steps_per_execution: the argument that was passed to compile().

    Returns:
      The ignored arguments, with what the estimator does instead; "none" if there are none.
    """
    ignored = []
    if jit_compile is True:
        ignored.append("jit_compile (XLA compiles every step on a TPU and none on a CPU)")
    if int(steps_per_execution or 1) > 1:
        ignored.append("steps_per_execution (set TPUConfig.iterations_per_loop)")
    return ", ".join(ignored) or "none"


def format_names(value: Any) -> str:
    """Format the names of a nest of losses or metrics; "none" if there are none."""
    names = [_get_name(entry) for entry in tf.nest.flatten(value) if entry is not None]
    return ", ".join(names) or "none"


def _get_name(value: Any) -> str:
    """Return the name of a loss or metric, which is a string, an object or a function."""
    if isinstance(value, str):
        return value
    return str(getattr(value, "name", None) or getattr(value, "__name__", type(value).__name__))
