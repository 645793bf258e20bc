"""Checks the pairs (function, tensors) in a TPUEstimatorSpec, and calls their functions.

The fields eval_metrics and host_call are such pairs; the function is called on the host.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from tpuserve.errors import InvalidSetting, InvalidType


def call_on_host(host_function: tuple[Callable[..., Any], Any]) -> Any:
    """Call the function of an eval_metrics or host_call pair with its tensors."""
    function, tensors = host_function
    return function(**tensors) if isinstance(tensors, Mapping) else function(*tensors)


def validate_host_function(name: str, pair: Any) -> None:
    """Check that a value is None, or a pair of a function and the function's tensors.

    Raises:
      InvalidSetting: the value is not a pair, the tensors are not a list or dict, or their number
        does not match the function's arguments.
    """
    if pair is None:
        return
    if isinstance(pair, Mapping):
        raise InvalidSetting(
            f"{name} is a dict, as eval_metric_ops of an EstimatorSpec is. Give a pair (function, "
            f"tensors): the function runs on the host, takes the tensors and returns the dict."
        )
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
        _check_argument_count(name, function, tensors)


def _check_argument_count(name: str, function: Callable[..., Any], tensors: Any) -> None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        # A function written in C may have no signature. Accept it without a check.
        return
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    accepted = [parameter for parameter in parameters if parameter.kind in by_position]
    required = [parameter for parameter in accepted if parameter.default is inspect.Parameter.empty]
    if not len(required) <= len(tensors) <= len(accepted):
        names = ", ".join(parameter.name for parameter in accepted)
        raise InvalidSetting(
            f"{name} has {len(tensors)} tensors for a function with the arguments "
            f"({names}). Give one tensor for each, in this order."
        )
