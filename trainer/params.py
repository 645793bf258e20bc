"""Hyperparameters: a dict, or an object in the way of HParams."""

import copy
from collections.abc import Mapping
from typing import Any

from tpuserve.errors import InvalidType


def checked(params: Any) -> Any:
    """A deep copy of hyperparameters; an empty dict for None.

    Raises:
      InvalidType: they are neither a mapping nor an object with add_hparam and set_hparam.
    """
    if params is None:
        return {}
    if _is_hparams(params):
        return copy.deepcopy(params)
    if not isinstance(params, Mapping):
        raise InvalidType(f"params is {params!r}. Give a dict of hyperparameters, or None.")
    return copy.deepcopy(dict(params))


def with_items(params: Any, items: Mapping[str, Any]) -> Any:
    """A deep copy of hyperparameters that has some items more."""
    extended = copy.deepcopy(params)
    for name, value in items.items():
        if not _is_hparams(extended):
            extended[name] = value
        elif name in extended:
            extended.set_hparam(name, value)
        else:
            extended.add_hparam(name, value)
    return extended


def item(params: Any, name: str) -> Any:
    """One of the hyperparameters, which is there."""
    return getattr(params, name) if _is_hparams(params) else params[name]


def _is_hparams(params: Any) -> bool:
    return hasattr(params, "add_hparam") and hasattr(params, "set_hparam")
