"""The registry of execution backends: for each name, the function that creates the backend."""

from collections.abc import Callable
from typing import Any

from tpuserve.errors import InvalidSetting
from trainer.backends.base import ExecutionBackend
from trainer.backends.local import create_local_backend
from trainer.backends.tpu.backend import create_tpu_backend

LOCAL = "local"
TPU = "tpu"

_factories: dict[str, Callable[..., ExecutionBackend]] = {
    LOCAL: create_local_backend,
    TPU: create_tpu_backend,
}


def register_backend(name: str, factory: Callable[..., ExecutionBackend]) -> None:
    """Register an execution backend.

    Args:
      name: the name for `create_backend`.
      factory: takes a program, a mode and the `options` of `create_backend` as keyword arguments,
        and returns a backend for one run of the mode.

    Raises:
      InvalidSetting: the name is registered already.
    """
    if name in _factories:
        raise InvalidSetting(
            f"An execution backend named {name!r} is registered already. Use another name."
        )
    _factories[name] = factory


def create_backend(name: str, program: Any, mode: str, **options: Any) -> ExecutionBackend:
    """Create the execution backend for one run of a mode.

    Args:
      name: a registered name.
      program: the user's model_fn and its settings.
      mode: one of `ModeKeys`.
      options: keyword arguments for the factory of the backend.

    Raises:
      InvalidSetting: no backend has this name, or the backend does not support the program's
        settings.
      TpuNotFound: the backend needs a TPU system and there is none.
    """
    if name not in _factories:
        raise InvalidSetting(
            f"There is no execution backend named {name!r}. Use one of {', '.join(_factories)}."
        )
    return _factories[name](program, mode, **options)
