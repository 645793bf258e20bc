"""Arrays of random values that usual models take."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tpuserve.errors import InvalidInput

WORDS = (b"a", b"the", b"one", b"red", b"tea", b"good", b"time", b"zebra")
NUMBERS = (b"0", b"1")


def random_array(
    dtype: Any, shape: Sequence[int], random: np.random.Generator, alias: str
) -> np.ndarray[Any, Any]:
    """An array of a TensorFlow type that is no string.

    Raises:
      InvalidInput: the type has no plain values, as a resource.
    """
    if dtype.is_bool:
        return random.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_floating or dtype.is_complex:
        # Drawn as float32, so that a 0.99999999 is not rounded to 1.
        return random.random(shape, np.float32).astype(dtype.as_numpy_dtype)
    if dtype.is_integer and not dtype.is_quantized:
        return random.integers(0, 2, shape).astype(dtype.as_numpy_dtype)
    raise InvalidInput(
        f"input {alias!r} is of type {dtype.name}, which has no plain values. Give its values in "
        f"a file, or leave out the signature."
    )


def random_words(
    shape: Sequence[int], random: np.random.Generator, *, are_numbers: bool = False
) -> np.ndarray[Any, Any]:
    """An object array of short words, or of the digits 0 and 1."""
    count = int(np.prod(shape, dtype=np.int64))
    choice = NUMBERS if are_numbers else WORDS
    return string_array([choice[each] for each in random.integers(0, len(choice), count)], shape)


def string_array(each: Sequence[bytes], shape: Sequence[int]) -> np.ndarray[Any, Any]:
    """An object array of bytes, which keeps what a fixed-width array strips: zeros at the end."""
    array = np.empty(len(each), object)
    array[:] = each
    return array.reshape(tuple(shape))
