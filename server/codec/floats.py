"""Writes arrays of floats as JSON, with the same digits as TensorFlow Serving."""

import re
import struct

import numpy as np
import orjson

from server.servables.servable import Array

# The range of the absolute values that `_round_to_decimals` can round.
_LOWEST, _HIGHEST = 1e-4, 1e9
# From this absolute value on, TensorFlow Serving writes a number with an exponent if six
# significant digits represent the number exactly.
_HIGHEST_OF_SIX = 1e6
_EXPONENTS = tuple(10.0**exponent for exponent in range(-3, 9))
_POWERS = np.array([10.0**exponent for exponent in range(14)])

# Matches a number in orjson's output that TensorFlow Serving may write differently: the number has
# more than six digits or an exponent, or its absolute value is below 0.0001.
_DIFFERS_FROM_SIX = re.compile(rb"[0-9.]{8}|[en]|0\.0000")

_SPECIAL = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def encode_floats(array: Array) -> bytes:
    """Encode an array of floats as JSON on one line, for example as "[0.5, 1e-05, NaN]".

    A number is written with six significant digits if these digits identify the float32 or float64
    exactly, and otherwise with nine (float32) or seventeen (float64) digits.

    Args:
      array: float32 or float64, of one dimension or more, not empty, in any memory layout.
    """
    decimals, is_known = _round_to_decimals(array)
    text = orjson.dumps(decimals, option=orjson.OPT_SERIALIZE_NUMPY).replace(b",", b", ")
    if is_known.all():
        return text
    # `decimals` has NaN, which orjson writes as null, in the place of each number that could not be
    # rounded. Replace each null by the original number, formatted in Python.
    fragments = text.split(b"null")
    others = [element.encode() for element in format_elements(array[~is_known])]
    pairs = zip(fragments, others, strict=False)
    return b"".join([*(part for pair in pairs for part in pair), fragments[-1]])


def encode_small(array: Array) -> bytes | None:
    """Encode a small array of floats as JSON with orjson, if orjson writes the right digits.

    Args:
      array: float32 or float64, of one dimension or more, not empty, in any memory layout.

    Returns:
      The JSON. None if TensorFlow Serving may write one of the numbers in another way than orjson:
      the caller must then format the numbers with `format_elements`.
    """
    shortest = orjson.dumps(np.ascontiguousarray(array), option=orjson.OPT_SERIALIZE_NUMPY)
    return None if _DIFFERS_FROM_SIX.search(shortest) else shortest.replace(b",", b", ")


def format_elements(array: Array) -> list[str]:
    """Format each float of an array as TensorFlow Serving writes it in JSON.

    The function is slow, because it formats one float at a time in Python.
    """
    numbers = array.reshape(-1).tolist()
    texts = [f"{number:.6g}" for number in numbers]
    if array.dtype == np.float32:
        layout = struct.Struct(f"{len(texts)}f")
        read_back, digits = layout.unpack(layout.pack(*map(float, texts))), 9
    else:
        read_back, digits = tuple(map(float, texts)), 17
    if list(read_back) != numbers:
        for position, number in enumerate(numbers):
            if read_back[position] != number:
                texts[position] = f"{number:.{digits}g}"
    return [
        text if "." in text or "e" in text else _SPECIAL.get(text) or text + ".0" for text in texts
    ]


def _round_to_decimals(array: Array) -> tuple[Array, Array]:
    """Round each number to the decimal of six or nine digits that TensorFlow Serving writes."""
    size = np.abs(array, dtype=np.float64)
    is_zero = size == 0
    with np.errstate(invalid="ignore"):
        in_range = (size >= _LOWEST) & (size < _HIGHEST)
    size = np.where(in_range, size, 1.0)
    # The decimal exponent of each number, which is its decimal logarithm rounded down: -4 for
    # 0.00012, 2 for 123.0.
    exponent = np.full(array.shape, -4, np.int8)
    for least in _EXPONENTS:
        exponent += size >= least
    six = _round_decimals(size, 5 - exponent)
    is_six = six.astype(array.dtype) == size
    known = is_six & (size < _HIGHEST_OF_SIX)
    if array.dtype == np.float32 and not known.all():
        # Use nine digits where six digits do not identify the float32.
        six = np.where(is_six, six, _round_decimals(size, 8 - exponent))
        known |= ~is_six
    known &= in_range
    decimals = np.copysign(np.where(known, six, np.nan), array)
    decimals[is_zero] = np.copysign(0.0, array[is_zero])
    return decimals, known | is_zero


def _round_decimals(size: Array, places: Array) -> Array:
    # Scale each number by a power of ten, round it to an integer, and scale it back. `places` is
    # the number of decimal places to keep; -2 means multiples of 100.
    up = _POWERS[np.maximum(places, 0)]
    down = _POWERS[np.maximum(-places, 0)]
    if places.min() >= 0:
        return np.asarray(np.rint(size * up) / up)
    return np.asarray(np.rint(size * up / down) * down / up)
