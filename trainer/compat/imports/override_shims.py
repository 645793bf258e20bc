"""Lets subclasses of Keras layers define methods without the argument `mask`, as in TensorFlow 1.

TensorFlow 1 called such a method without a mask, but tf_keras passes one.
"""

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

# The module of tf_keras that defines batch normalization.
BATCH_NORMALIZATION_MODULE = "tf_keras.src.layers.normalization.batch_normalization"
_METHODS = ("_moments", "_calculate_mean_and_var")


def install_override_shims(module: ModuleType) -> None:
    """Let subclasses of Keras's BatchNormalization define methods that do not accept a mask.

    TensorFlow 1 called the methods without a mask, but tf_keras passes one.
    """
    base = module.BatchNormalizationBase

    def __init_subclass__(cls: type, /, **options: Any) -> None:
        super(base, cls).__init_subclass__(**options)
        for name in _METHODS:
            method = cls.__dict__.get(name)
            if inspect.isfunction(method) and not _takes_mask(method):
                setattr(cls, name, _drop_mask(method))

    base.__init_subclass__ = classmethod(__init_subclass__)


def _takes_mask(method: Callable[..., Any]) -> bool:
    parameters = inspect.signature(method).parameters
    return "mask" in parameters or any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()
    )


def _drop_mask(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call_without_mask(*arguments: Any, mask: Any = None, **options: Any) -> Any:
        return method(*arguments, **options)

    return call_without_mask
