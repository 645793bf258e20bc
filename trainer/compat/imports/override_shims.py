"""Methods of Keras layers that programs override with the arguments that they had once."""

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

# Where batch normalization's moments are computed, which programs have summed over the replicas.
BATCH_NORMALIZATION_MODULE = "tf_keras.src.layers.normalization.batch_normalization"
_METHODS = ("_moments", "_calculate_mean_and_var")


def install_override_shims(module: ModuleType) -> None:
    """Has batch normalization call overrides that know of no mask, as TensorFlow 1 did.

    Args:
      module: that of MODULE, imported. Classes that are derived later are meant.
    """
    base = module.BatchNormalizationBase

    def __init_subclass__(cls: type, /, **options: Any) -> None:
        super(base, cls).__init_subclass__(**options)
        for name in _METHODS:
            method = cls.__dict__.get(name)
            if inspect.isfunction(method) and not _takes_mask(method):
                setattr(cls, name, _without_mask(method))

    base.__init_subclass__ = classmethod(__init_subclass__)


def _takes_mask(method: Callable[..., Any]) -> bool:
    parameters = inspect.signature(method).parameters
    return "mask" in parameters or any(
        each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()
    )


def _without_mask(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def called(*arguments: Any, mask: Any = None, **options: Any) -> Any:
        return method(*arguments, **options)

    return called
