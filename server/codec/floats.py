"""Floats as TensorFlow Serving writes them, a whole array at a time."""

import re
import struct

import numpy as np
import orjson

from server.servables.servable import Array

# Between these a number has no exponent in any of the forms, and ten to the power of what makes
# it a whole number of nine digits is exact in a double.
_LOWEST, _HIGHEST = 1e-4, 1e9
# From here on the form of six digits has an exponent.
_HIGHEST_OF_SIX = 1e6
_EXPONENTS = tuple(10.0**exponent for exponent in range(-3, 9))
_POWERS = np.array([10.0**exponent for exponent in range(14)])

# In the shortest digits of small arrays: more than six of them, an exponent, or null. What has
# none of these is what the form of six digits is, too.
_UNUSUAL = re.compile(rb"[0-9.]{8}|[en]|0\.0000")

_SPECIAL = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def encode(array: Array) -> bytes:
    """The JSON of an array of floats, on one line: "[0.5, 1e-05, NaN]".

    A number has six significant digits where those read back as the same number of the array's
    type, else nine (float) or seventeen (double), and is told from a whole number by its ".0".
    Source: tensorflow_serving/util/json_tensor.cc.

    orjson writes the shortest digits that make a double; so it is given the doubles nearest to
    the decimals that are wanted.

    Args:
      array: float32 or float64, of one dimension or more, and not empty; in any layout.
    """
    decimals, is_known = _decimals(array)
    text = orjson.dumps(decimals, option=orjson.OPT_SERIALIZE_NUMPY).replace(b",", b", ")
    if is_known.all():
        return text
    # orjson has written null for each of the others.
    pieces = text.split(b"null")
    written = [each.encode() for each in texts(array[~is_known])]
    return b"".join([*(x for pair in zip(pieces, written, strict=False) for x in pair), pieces[-1]])


def encode_few(array: Array) -> bytes | None:
    """The JSON of an array of few floats; None where that takes a look at each: see `texts`."""
    usual = orjson.dumps(np.ascontiguousarray(array), option=orjson.OPT_SERIALIZE_NUMPY)
    return None if _UNUSUAL.search(usual) else usual.replace(b",", b", ")


def texts(array: Array) -> list[str]:
    """The JSON of each float of an array, for few of them, or for what is rare."""
    numbers = array.reshape(-1).tolist()
    texts = [f"{number:.6g}" for number in numbers]
    if array.dtype == np.float32:
        layout = struct.Struct(f"{len(texts)}f")
        read, digits = layout.unpack(layout.pack(*map(float, texts))), 9
    else:
        read, digits = tuple(map(float, texts)), 17
    if list(read) != numbers:
        for place, number in enumerate(numbers):
            if read[place] != number:
                texts[place] = f"{number:.{digits}g}"
    return [
        each if "." in each or "e" in each else _SPECIAL.get(each) or each + ".0" for each in texts
    ]


def _decimals(array: Array) -> tuple[Array, Array]:
    """The doubles to be written; NaN, and False in the second array, where there is none."""
    size = np.abs(array, dtype=np.float64)
    is_zero = size == 0
    with np.errstate(invalid="ignore"):
        in_range = (size >= _LOWEST) & (size < _HIGHEST)
    size = np.where(in_range, size, 1.0)
    # Floored logarithm: 0.00012 → -4, 123.0 → 2.
    exponent = np.full(array.shape, -4, np.int8)
    for least in _EXPONENTS:
        exponent += size >= least
    six = _rounded(size, 5 - exponent)
    is_six = six.astype(array.dtype) == size
    known = is_six & (size < _HIGHEST_OF_SIX)
    if array.dtype == np.float32 and not known.all():
        # A float has 24 bits and the power of ten 28, so that their product is exact and is
        # rounded as the decimal itself would be.
        six = np.where(is_six, six, _rounded(size, 8 - exponent))
        known |= ~is_six
    known &= in_range
    decimals = np.copysign(np.where(known, six, np.nan), array)
    decimals[is_zero] = np.copysign(0.0, array[is_zero])
    return decimals, known | is_zero


def _rounded(size: Array, places: Array) -> Array:
    # To so many decimal places, negative ones included; the division is what makes it the
    # double nearest to the decimal.
    up = _POWERS[np.maximum(places, 0)]
    down = _POWERS[np.maximum(-places, 0)]
    if places.min() >= 0:
        return np.asarray(np.rint(size * up) / up)
    return np.asarray(np.rint(size * up / down) * down / up)
