"""Default arguments for functions, as long as a scope lasts.

Within `with arg_scope([conv2d], padding="VALID"):` each call of conv2d that says nothing of its
padding has "VALID". Scopes nest; the inner one's argument counts.
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
    """What scopes know a function by: the same for it and for what it wraps."""
    return getattr(op, "_key_op", str(op))


def current_arg_scope() -> Scope:
    """Key of a function → its default arguments."""
    return _scopes()[-1]


def _scopes() -> list[Scope]:
    if not hasattr(_state, "scopes"):
        _state.scopes = [{}]
    scopes: list[Scope] = _state.scopes
    return scopes


@contextlib.contextmanager
def arg_scope(
    list_ops_or_scope: Sequence[Callable[..., Any]] | Mapping[Any, Any], **defaults: Any
) -> Iterator[Scope]:
    """Sets default arguments of functions.

    Args:
      list_ops_or_scope: functions that `add_arg_scope` decorates; or a scope that an earlier
        `with arg_scope(...) as scope` gave, which takes the place of the present one.
      defaults: name of an argument → default, for all of the functions.

    Raises:
      InvalidType: it is neither a list nor a scope.
      InvalidSetting: a scope comes with arguments, or a function has no scope.
    """
    _scopes().append(_make_scope(list_ops_or_scope, defaults))
    try:
        yield current_arg_scope()
    finally:
        _scopes().pop()


def _make_scope(given: Any, defaults: Mapping[str, Any]) -> Scope:
    if isinstance(given, Mapping):
        if defaults:
            raise InvalidSetting(
                f"arg_scope has a scope and the arguments {', '.join(defaults)}. Give either a "
                f"scope, or a list of functions and arguments."
            )
        return dict(given)
    if not isinstance(given, (list, tuple, set, frozenset)):
        raise InvalidType(f"arg_scope is for {given!r}. Give a list of functions, or a scope.")
    scope = {key: dict(values) for key, values in current_arg_scope().items()}
    for op in given:
        if not has_arg_scope(op):
            raise InvalidSetting(
                f"arg_scope is for {op!r}, which has no scope. Decorate it with @add_arg_scope."
            )
        scope.setdefault(arg_scope_func_key(op), {}).update(defaults)
    return scope


def add_arg_scope(func: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with defaults that `arg_scope` can set."""

    @functools.wraps(func)
    def scoped(*args: Any, **kwargs: Any) -> Any:
        defaults = current_arg_scope().get(key)
        return func(*args, **({**defaults, **kwargs} if defaults else kwargs))

    key = arg_scope_func_key(func)
    scoped._key_op = key  # type: ignore[attr-defined]
    _arguments[key] = _defaulted_arguments(func)
    return scoped


def _defaulted_arguments(func: Callable[..., Any]) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(func).parameters.values()
    except (TypeError, ValueError):
        # Functions written in C need not tell their arguments.
        return ()
    return tuple(each.name for each in parameters if each.default is not each.empty)


def has_arg_scope(func: Callable[..., Any]) -> bool:
    """Whether `arg_scope` can set the defaults of a function."""
    return arg_scope_func_key(func) in _arguments


def arg_scoped_arguments(func: Callable[..., Any]) -> tuple[str, ...]:
    """The names of the arguments that `arg_scope` can set."""
    return _arguments[arg_scope_func_key(func)]
