"""Encodes arrays as JSON on one line."""

import base64
import math
import re
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import orjson

from server.codec import floats
from server.servables.servable import Array
from tpuserve.errors import InvalidTensor
from tpuserve.saved_model import dtypes

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
        encoded = floats.encode_small(array)
        if encoded is not None:
            return encoded
        return nest([text.encode() for text in floats.format_elements(array)], array.shape)
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
        return floats.encode_floats(array)
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
