"""Copies, extends and reads hyperparameters: a dict, or an object with the methods of HParams.

HParams is the class tf.contrib.training.HParams of TensorFlow 1.
"""

import copy
from collections.abc import Mapping, MutableMapping
from typing import Any

from tpuserve.errors import InvalidType


def copy_hyperparameters(params: Any, *, takes_items: bool) -> Any:
    """Return a deep copy of hyperparameters that has the type of the original.

    The copy of an immutable mapping is a dict.

    Args:
      params: the hyperparameters; None for an empty dict.
      takes_items: whether the caller will add items, as TPUEstimator adds "batch_size".

    Raises:
      InvalidType: takes_items is true, and params is neither a mapping nor an object with
        add_hparam and set_hparam.
    """
    if params is None:
        return {}
    if not takes_items and not isinstance(params, Mapping):
        return copy.deepcopy(params)
    if _is_hparams(params) or isinstance(params, MutableMapping):
        # Copy without a conversion to dict, because model_fn and input_fn can rely on the type of
        # params.
        return copy.deepcopy(params)
    if not isinstance(params, Mapping):
        raise InvalidType(f"params is {params!r}. Give a dict of hyperparameters, or None.")
    return copy.deepcopy(dict(params))


def with_hyperparameters(params: Any, items: Mapping[str, Any]) -> Any:
    """Return a deep copy of hyperparameters to which items are added.

    Args:
      items: name → value of each hyperparameter to add. These values replace existing ones of the
        same name.
    """
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
    """Return the value of a hyperparameter, which must exist, from a dict or an HParams."""
    return getattr(params, name) if _is_hparams(params) else params[name]


def _is_hparams(params: Any) -> bool:
    return hasattr(params, "add_hparam") and hasattr(params, "set_hparam")
