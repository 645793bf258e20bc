"""Hyperparameters: a dict, or an object in the way of HParams."""

import copy
from collections.abc import Mapping, MutableMapping
from typing import Any

from tpuserve.errors import InvalidType


def copy_hyperparameters(params: Any, *, takes_items: bool) -> Any:
    """A deep copy of hyperparameters, of their own type; an empty dict for None.

    Args:
      params: what the user gave.
      takes_items: whether items will be added, as TPUEstimator's batch_size is.

    Raises:
      InvalidType: items will be added, and they are neither a mapping nor an object with
        add_hparam and set_hparam.
    """
    if params is None:
        return {}
    if not takes_items and not isinstance(params, Mapping):
        return copy.deepcopy(params)
    if _is_hparams(params) or isinstance(params, MutableMapping):
        # A defaultdict, or a dict with attributes: functions rely on more than its items.
        return copy.deepcopy(params)
    if not isinstance(params, Mapping):
        raise InvalidType(f"params is {params!r}. Give a dict of hyperparameters, or None.")
    return copy.deepcopy(dict(params))


def with_hyperparameters(params: Any, items: Mapping[str, Any]) -> Any:
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


def get_hyperparameter(params: Any, name: str) -> Any:
    """One of the hyperparameters, which is there."""
    return getattr(params, name) if _is_hparams(params) else params[name]


def _is_hparams(params: Any) -> bool:
    return hasattr(params, "add_hparam") and hasattr(params, "set_hparam")
