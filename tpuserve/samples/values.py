"""Generates arrays of random values that common models accept."""

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpuserve.errors import InvalidInput

# One of these is two words, so that models that split strings have more words than strings.
WORDS = (b"a", b"the", b"one", b"red", b"tea", b"good", b"time", b"good zebra")
NUMBERS = (b"0", b"1")
PICTURE_SIZE = 8
"""The width and the height of a generated picture, in pixels."""


def random_array(
    dtype: Any, shape: Sequence[int], random: np.random.Generator, alias: str
) -> np.ndarray[Any, Any]:
    """Return an array of random values of any dtype except string.

    Raises:
      InvalidInput: the dtype is quantized, or NumPy arrays cannot have it, such as resource.
    """
    if dtype.is_bool:
        return random.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_floating or dtype.is_complex:
        # Draw float32 values. A float64 value just below 1 could be rounded to 1 by the conversion
        # to `dtype`, and `generate_inputs` promises floats below 1.
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
    """Return an object array of random short texts as bytes; most are a single word.

    Args:
      are_numbers: whether the texts must be numbers. Then they are "0" and "1".
    """
    count = int(np.prod(shape, dtype=np.int64))
    choice = NUMBERS if are_numbers else WORDS
    return string_array([choice[index] for index in random.integers(0, len(choice), count)], shape)


def random_picture(random: np.random.Generator) -> bytes:
    """Return the bytes of a small PNG file with random RGB pixels.

    Models that decode JPEG files accept it too: TensorFlow's decoding ops detect the format.
    """
    side = PICTURE_SIZE
    rows = random.integers(0, 256, (side, side * 3), np.uint8)
    # The format of PNG: each row of pixels begins with the number of a filter, 0 for none.
    pixels = b"".join(b"\0" + row.tobytes() for row in rows)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(pixels)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def string_array(strings: Sequence[bytes], shape: Sequence[int]) -> np.ndarray[Any, Any]:
    """Return strings as an object array of a shape.

    NumPy's dtype for byte strings, "S", would remove zero bytes from their ends.
    """
    array = np.empty(len(strings), object)
    array[:] = strings
    return array.reshape(tuple(shape))
