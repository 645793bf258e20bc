"""Encodes arrays as JSON on one line."""

import base64
import math
import re
import struct
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import orjson

from server.servables.servable import Array
from tpuserve.errors import InvalidTensor
from tpuserve.saved_model import dtypes

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


JsonText: TypeAlias = bytes | bytearray
"""Encoded JSON. Large texts are a bytearray, which is extended without a copy."""

_KINDS = {np.dtype(object): "string"}
_KINDS.update((np.dtype(dtype), "float") for dtype in ("float32", "float64"))
_KINDS.update(
    (np.dtype(dtype), "other")
    for dtype in ("int8", "int16", "int32", "int64", "uint8", "uint32", "uint64", "bool")
)
# An array of floats with at most this number of elements is encoded by `floats.encode_small`, which
# is faster for small arrays than `floats.encode_floats`.
_FEW = 48
CHUNK_SIZE = 1 << 14
"""Larger arrays are encoded in chunks of at most this number of elements."""
_MUST_BE_ESCAPED = re.compile(rb'["\\\x00-\x1f]')
_ESCAPES = {
    b'"': b'\\"',
    b"\\": b"\\\\",
    b"\b": b"\\b",
    b"\f": b"\\f",
    b"\n": b"\\n",
    b"\r": b"\\r",
    b"\t": b"\\t",
}


def encode_tensor(name: str, array: Array) -> JsonText:
    """Encode a tensor as JSON, for example as "[[1, 2], [3, 4]]".

    Bytes of a string that are not UTF-8 are copied to the JSON unchanged.
    """
    kind = _KINDS.get(array.dtype)
    if kind == "string":
        return nest(_encode_strings(name, array), array.shape)
    if kind is None:
        raise InvalidTensor(
            "Failed to write JSON value for tensor type: " + dtypes.runtime_name(array.dtype.name)
        )
    if not array.ndim:
        return encode_tensor(name, array.reshape(1))[1:-1]
    if not array.size:
        return nest([], array.shape)
    if kind == "float" and array.size <= _FEW:
        encoded = encode_small(array)
        if encoded is not None:
            return encoded
        return nest([text.encode() for text in format_elements(array)], array.shape)
    if array.size <= CHUNK_SIZE:
        return _encode_numbers(array, kind)
    text = bytearray()
    _append_chunked(text, array, kind)
    return text


def append_tensor(text: bytearray, name: str, array: Array) -> None:
    """Append the JSON of a tensor to a text.

    The JSON is the result of `encode_tensor`. A large tensor is encoded into `text` itself, so that
    its JSON is not copied.
    """
    kind = _KINDS.get(array.dtype)
    if kind in ("float", "other") and array.size > CHUNK_SIZE:
        _append_chunked(text, array, kind)
    else:
        text += encode_tensor(name, array)


def encode_rows(name: str, array: Array) -> list[JsonText]:
    """Encode each row of an array (each index of its first dimension) as JSON by itself."""
    if array.dtype == object or not array.size:
        return [encode_tensor(name, row) for row in _split_rows(array)]
    opening, closing = b"[" * array.ndim, b"]" * array.ndim
    # Encode the whole array, and split the JSON into rows. This is faster than encoding each row by
    # itself.
    separator = closing[1:] + b", " + opening[1:]
    rows: list[JsonText] = [
        *encode_tensor(name, array)[len(opening) : -len(closing)].split(separator)
    ]
    return [opening[1:] + row + closing[1:] for row in rows] if array.ndim > 1 else rows


def quote_string(string: bytes) -> bytes:
    """Encode a string of bytes as a JSON string. Bytes that are not UTF-8 are copied unchanged."""
    return b'"' + _MUST_BE_ESCAPED.sub(_escape, string) + b'"'


def _escape(match: "re.Match[bytes]") -> bytes:
    character = match.group()
    return _ESCAPES.get(character) or b"\\u%04X" % ord(character)


def _encode_numbers(array: Array, kind: str) -> bytes:
    if kind == "float":
        return encode_floats(array)
    # Convert the array to C (row-major) order, because orjson accepts no other memory layout.
    array = np.ascontiguousarray(array)
    return orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY).replace(b",", b", ")


def _append_chunked(text: bytearray, array: Array, kind: str) -> None:
    # Append the array in chunks of whole rows (indices of the first dimension), with at most
    # CHUNK_SIZE numbers each. A row with more numbers than this is itself appended in chunks.
    row_size = array[0].size
    text += b"["
    if row_size > CHUNK_SIZE:
        for position, row in enumerate(array):
            text += b", " if position else b""
            _append_chunked(text, row, kind)
    else:
        rows = max(1, CHUNK_SIZE // row_size)
        for start in range(0, len(array), rows):
            text += b", " if start else b""
            text += memoryview(_encode_numbers(array[start : start + rows], kind))[1:-1]
    text += b"]"


def _split_rows(array: Array) -> list[Array]:
    # Index with an ellipsis, so that each row is an array. Without the ellipsis, a row of a
    # one-dimensional object array would be the Python object in it.
    return [array[position, ...] for position in range(array.shape[0])]


def _encode_strings(name: str, array: Array) -> list[bytes]:
    leaves = array.reshape(-1).tolist()
    if not name.endswith("_bytes"):
        return [quote_string(leaf) for leaf in leaves]
    return [b'{"b64": "' + base64.b64encode(leaf) + b'"}' for leaf in leaves]


def nest(leaves: Sequence[bytes], shape: tuple[int, ...]) -> bytes:
    """Join the JSON of an array's elements into nested JSON lists of the array's shape."""
    if len(shape) == 1:
        return b"[" + b", ".join(leaves) + b"]"
    for level in reversed(range(len(shape))):
        size, count = shape[level], math.prod(shape[:level])
        leaves = (
            [
                b"[" + b", ".join(leaves[start : start + size]) + b"]"
                for start in range(0, size * count, size)
            ]
            if size
            else [b"[]"] * count
        )
    return leaves[0]
