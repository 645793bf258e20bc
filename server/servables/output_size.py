"""Estimates how long the outputs of a model take to encode, before they are encoded."""

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

MANY_VALUES = 1 << 13
"""The number of values from which outputs are large."""

BYTES_PER_VALUE = 16
"""The number of bytes of a string that take about as long to encode as a further value."""


def count_values(arrays: Iterable[np.ndarray[Any, Any]]) -> int:
    """Return about how many values must be encoded: numbers, strings and parts of long strings.

    Args:
      arrays: the outputs, of any shape and dtype. Strings are object arrays of bytes.
    """
    return sum(
        count_strings(array.reshape(-1).tolist())
        if array.dtype.hasobject and array.size <= MANY_VALUES
        else array.size
        for array in arrays
    )


def count_strings(strings: Collection[bytes]) -> int:
    """Return about how many values must be encoded to encode some strings.

    The lengths of the strings are not added if the strings are many, because then the number of
    strings alone tells that the outputs are large.
    """
    if len(strings) > MANY_VALUES:
        return len(strings)
    return len(strings) + sum(map(len, strings)) // BYTES_PER_VALUE
