"""arg_scope, which sets default arguments of functions within a `with` block.

Within `with arg_scope([conv2d], padding="VALID"):` each call of conv2d without a padding uses
"VALID". Scopes nest, and the argument of the innermost scope counts.
"""

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tpuserve.errors import InvalidSetting, InvalidType

__all__ = [
    "add_arg_scope",
    "arg_scope",
    "arg_scope_func_key",
    "arg_scoped_arguments",
    "current_arg_scope",
    "has_arg_scope",
]

Scope = dict[Any, dict[str, Any]]

_state = threading.local()
_arguments: dict[Any, tuple[str, ...]] = {}


def arg_scope_func_key(op: Callable[..., Any]) -> Any:
    """Return the key under which a scope holds the default arguments of a function.

    A function that `add_arg_scope` has decorated has the same key as the undecorated function.
    """
    return getattr(op, "_key_op", str(op))


def current_arg_scope() -> Scope:
    """Return the innermost scope of this thread, a dict of the functions' default arguments.

    The dict maps the key of a function, see `arg_scope_func_key`, to a dict of argument name →
    default.
    """
    return _scopes()[-1]


def _scopes() -> list[Scope]:
    """Return the stack of the scopes that this thread has entered; the innermost is the last."""
    if not hasattr(_state, "scopes"):
        _state.scopes = [{}]
    scopes: list[Scope] = _state.scopes
    return scopes


@contextlib.contextmanager
def arg_scope(
    list_ops_or_scope: Sequence[Callable[..., Any]] | Mapping[Any, Any], **defaults: Any
) -> Iterator[Scope]:
    """Set default arguments of functions within a `with` block."""
    _scopes().append(_make_scope(list_ops_or_scope, defaults))
    try:
        yield current_arg_scope()
    finally:
        _scopes().pop()


def _make_scope(ops_or_scope: Any, defaults: Mapping[str, Any]) -> Scope:
    """Return the scope that `arg_scope` enters when it is called with these arguments."""
    if isinstance(ops_or_scope, Mapping):
        if defaults:
            raise InvalidSetting(
                f"arg_scope got a scope and the arguments {', '.join(defaults)}. Pass either a "
                f"scope, or a list of functions and arguments."
            )
        return dict(ops_or_scope)
    if not isinstance(ops_or_scope, (list, tuple, set, frozenset)):
        raise InvalidType(f"arg_scope got {ops_or_scope!r}. Pass a list of functions, or a scope.")
    scope = {key: dict(values) for key, values in current_arg_scope().items()}
    for op in ops_or_scope:
        if not has_arg_scope(op):
            raise InvalidSetting(
                f"arg_scope got {op!r}, which takes no scope. Decorate it with @add_arg_scope."
            )
        scope.setdefault(arg_scope_func_key(op), {}).update(defaults)
    return scope


def add_arg_scope(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function so that `arg_scope` can set its default arguments."""

    @functools.wraps(func)
    def call_with_scope(*args: Any, **kwargs: Any) -> Any:
        defaults = current_arg_scope().get(key)
        return func(*args, **({**defaults, **kwargs} if defaults else kwargs))

    key = arg_scope_func_key(func)
    call_with_scope._key_op = key  # type: ignore[attr-defined]
    _arguments[key] = _defaulted_arguments(func)
    return call_with_scope


def _defaulted_arguments(func: Callable[..., Any]) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(func).parameters.values()
    except (TypeError, ValueError):
        # Return no names if Python does not know the function's signature, as for some functions
        # that are written in C.
        return ()
    return tuple(
        parameter.name for parameter in parameters if parameter.default is not parameter.empty
    )


def has_arg_scope(func: Callable[..., Any]) -> bool:
    """Return whether `add_arg_scope` decorates a function, as `arg_scope` requires."""
    return arg_scope_func_key(func) in _arguments


def arg_scoped_arguments(func: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of a function's arguments that have defaults."""
    return _arguments[arg_scope_func_key(func)]
