"""Maps nests of tensors, also dicts with keys of several types, which tf.nest cannot sort."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf


def map_parts(function: Callable[[Any], Any], value: Any, *, composites: bool = False) -> Any:
    """Call a function for each part of a nest; return the nest of the results.

    Args:
      function: takes a part, such as a tensor.
    """
    if isinstance(value, Mapping) and len({isinstance(key, str) for key in value}) > 1:
        return {
            key: map_parts(function, part, composites=composites) for key, part in value.items()
        }
    if type(value) is tuple:
        return tuple(map_parts(function, part, composites=composites) for part in value)
    return tf.nest.map_structure(function, value, expand_composites=composites)


def flatten_parts(value: Any) -> list[Any]:
    """Return the parts of a nest, in an order that is the same for equal nests."""
    parts: list[Any] = []
    map_parts(parts.append, value)
    return parts
