"""Finds unsupported options of Keras models, and describes the arguments of compile().

These functions are for both Keras 3 and tf_keras.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from trainer.keras.model.adapter import KerasAdapter
from trainer.keras.model.tracing import eager_mode
from trainer.keras.model.unsupported_options import unsupported_option_error
from trainer.keras_internals import find_private_attribute


def check_convertible(adapter: KerasAdapter, model: Any, *, use_tpu: bool) -> None:
    """Check that a model is compiled and has no unsupported option."""
    with eager_mode():
        for option, owner in adapter.unsupported_options(model, use_tpu):
            label = f"{adapter.name} model {model.name}"
            raise unsupported_option_error(option, f"{label} ({owner})" if owner else label)


_STEP_METHODS = ("train_step", "test_step", "predict_step", "compute_metrics")


def overridden_steps(model: Any, base: type) -> Iterator[tuple[str, str]]:
    """Find the step methods, such as train_step, that a user's model class overrides.

    An estimator does not call these methods.
    """
    for name in _STEP_METHODS:
        owner = next(kind for kind in type(model).__mro__ if name in vars(kind))
        if owner.__module__.partition(".")[0] != base.__module__.partition(".")[0]:
            yield name, owner.__name__


def unreduced_losses(losses: Any, no_reduction: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """Find the losses of compile() that return a loss for each example, and not one number.

    Yields:
      (a key of `UNSUPPORTED_OPTIONS`, name of the loss's class).
    """
    for loss in tf.nest.flatten(losses):
        if hasattr(loss, "reduction") and loss.reduction in no_reduction:
            yield "reduction='none'", type(loss).__name__


def unsupported_layer_options(
    layer: Any, dtype_policy: str, use_tpu: bool
) -> Iterator[tuple[str, str]]:
    """Find the options of a layer that an estimator does not support."""
    can_reset_state = hasattr(layer, "reset_state") or hasattr(layer, "reset_states")
    if getattr(layer, "stateful", False) is True and can_reset_state:
        yield "stateful", layer.name
    if use_tpu and getattr(layer, "lookup_table", None) is not None:
        yield "lookup table", layer.name
    if dtype_policy == "mixed_float16":
        yield "mixed_float16", layer.name
    if getattr(layer, "dynamic", False) is True:
        yield "dynamic", layer.name


def describe_optimizer(optimizer: Any) -> str:
    """Describe an optimizer for the log by its class and learning rate.

    The learning rate is a number or the class of a schedule: "SGD(0.01)", "Adam(CosineDecay)".
    """
    rate = find_private_attribute(optimizer, "_learning_rate")
    if rate is None:
        rate = find_private_attribute(optimizer, "_hyper", {}).get("learning_rate")
    read_value = getattr(rate, "numpy", None)
    if read_value is not None:
        rate = f"{float(read_value()):g}"
    elif not isinstance(rate, (int, float)):
        rate = type(rate).__name__
    return f"{type(optimizer).__name__}({rate})"


def describe_ignored_options(jit_compile: Any, steps_per_execution: Any) -> str:
    """Describe, for the log, arguments of compile() that an estimator ignores.

    Returns:
      The names of the ignored arguments, each with a remark on what the estimator does instead;
      "none" if no argument is ignored.
    """
    ignored = []
    if jit_compile is True:
        ignored.append("jit_compile (XLA compiles every step on a TPU and none on a CPU)")
    if int(steps_per_execution or 1) > 1:
        ignored.append("steps_per_execution (set TPUConfig.iterations_per_loop)")
    return ", ".join(ignored) or "none"


def format_names(value: Any) -> str:
    """Return the names in a nest of losses or metrics, separated by commas; "none" for no name."""
    names = [_get_name(entry) for entry in tf.nest.flatten(value) if entry is not None]
    return ", ".join(names) or "none"


def _get_name(value: Any) -> str:
    if isinstance(value, str):
        return value
    return str(getattr(value, "name", None) or getattr(value, "__name__", type(value).__name__))
