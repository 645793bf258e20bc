"""Functions that a spec asks to be called on the host: metric functions and host calls."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from tpuserve.errors import InvalidSetting, InvalidType


def call_on_host(host_function: tuple[Callable[..., Any], Any]) -> Any:
    """What the function of an eval_metrics or host_call pair returns for its tensors."""
    function, tensors = host_function
    return function(**tensors) if isinstance(tensors, Mapping) else function(*tensors)


def validate_host_function(name: str, pair: Any) -> None:
    """Refuses what is no pair of a function and the tensors it takes; None passes.

    Raises:
      InvalidSetting: it is no pair, its tensors are no list or dict, or are more or fewer than
        the function's arguments.
      InvalidType: its first item cannot be called.
    """
    if pair is None:
        return
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise InvalidSetting(f"{name} is {pair!r}. Give a pair (function, tensors).")
    function, tensors = pair
    if not callable(function):
        raise InvalidType(
            f"{name} starts with {function!r}, which cannot be called. Give a pair (function, "
            f"tensors)."
        )
    if not isinstance(tensors, (tuple, list, Mapping)):
        raise InvalidSetting(f"{name} has tensors {tensors!r}. Give a list or a dict of tensors.")
    if not isinstance(tensors, Mapping):
        _check_count(name, function, tensors)


def _check_count(name: str, function: Callable[..., Any], tensors: Any) -> None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        # Functions written in C need not tell their arguments.
        return
    if any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters):
        return
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    most = [each for each in parameters if each.kind in by_position]
    least = [each for each in most if each.default is inspect.Parameter.empty]
    if not len(least) <= len(tensors) <= len(most):
        raise InvalidSetting(
            f"{name} has {len(tensors)} tensors for a function with the arguments "
            f"({', '.join(each.name for each in most)}). Give one tensor for each, in this order."
        )
