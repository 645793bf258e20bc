"""Arrays as JSON text on one line."""

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

Text: TypeAlias = bytes | bytearray
"""JSON; a bytearray where it is large, to be extended without a copy."""

_KINDS = {np.dtype(object): "string"}
_KINDS.update((np.dtype(each), "float") for each in ("float32", "float64"))
_KINDS.update(
    (np.dtype(each), "other")
    for each in ("int8", "int16", "int32", "int64", "uint8", "uint32", "uint64", "bool")
)
# Up to so many floats are written faster one by one.
_FEW = 48
# More numbers than this are written some at a time: all at once would take several times the
# memory of the text, and go through it more slowly than what a processor has at hand.
MANY = 1 << 14
_TO_ESCAPE = re.compile(rb'["\\\x00-\x1f]')
_ESCAPES = {
    b'"': b'\\"',
    b"\\": b"\\\\",
    b"\b": b"\\b",
    b"\f": b"\\f",
    b"\n": b"\\n",
    b"\r": b"\\r",
    b"\t": b"\\t",
}


def encode(name: str, array: Array) -> Text:
    """The JSON of one tensor: "[[1, 2], [3, 4]]".

    Strings are written as they are, whatever their bytes, and as {"b64": "..."} where the
    tensor's name ends in "_bytes".

    Raises:
      InvalidTensor: a type that JSON has no form for.
    """
    kind = _KINDS.get(array.dtype)
    if kind == "string":
        return nested(_strings(name, array), array.shape)
    if kind is None:
        raise InvalidTensor(
            "Failed to write JSON value for tensor type: " + dtypes.runtime_name(array.dtype.name)
        )
    if not array.ndim:
        return encode(name, array.reshape(1))[1:-1]
    if not array.size:
        return nested([], array.shape)
    if kind == "float" and array.size <= _FEW:
        written = floats.encode_few(array)
        if written is not None:
            return written
        return nested([each.encode() for each in floats.texts(array)], array.shape)
    if array.size <= MANY:
        return _numbers(array, kind)
    text = bytearray()
    _append(text, array, kind)
    return text


def append(text: bytearray, name: str, array: Array) -> None:
    """Extends a text by what `encode` gives, which takes no memory of its own."""
    kind = _KINDS.get(array.dtype)
    if kind in ("float", "other") and array.size > MANY:
        _append(text, array, kind)
    else:
        text += encode(name, array)


def encode_each(name: str, array: Array) -> list[Text]:
    """The JSON of each row of an array of one dimension or more.

    Raises:
      InvalidTensor: a type that JSON has no form for.
    """
    if array.dtype == object or not array.size:
        return [encode(name, row) for row in _rows(array)]
    opening, closing = b"[" * array.ndim, b"]" * array.ndim
    # Between numbers there is no bracket, so that this parts rows and nothing else.
    between = closing[1:] + b", " + opening[1:]
    rows: list[Text] = [*encode(name, array)[len(opening) : -len(closing)].split(between)]
    return [opening[1:] + row + closing[1:] for row in rows] if array.ndim > 1 else rows


def quote(string: bytes) -> bytes:
    """A string of JSON; bytes that are no UTF-8 stay what they are."""
    return b'"' + _TO_ESCAPE.sub(_escape, string) + b'"'


def _escape(found: "re.Match[bytes]") -> bytes:
    character = found.group()
    return _ESCAPES.get(character) or b"\\u%04X" % ord(character)


def _numbers(array: Array, kind: str) -> bytes:
    if kind == "float":
        return floats.encode(array)
    # orjson takes arrays in the machine's order of bytes and rows only.
    array = np.ascontiguousarray(array)
    return orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY).replace(b",", b", ")


def _append(text: bytearray, array: Array, kind: str) -> None:
    # As many rows at a time as hold so many numbers; a row that holds more, by its own rows.
    row_size = array[0].size
    text += b"["
    if row_size > MANY:
        for position, row in enumerate(array):
            text += b", " if position else b""
            _append(text, row, kind)
    else:
        rows = max(1, MANY // row_size)
        for start in range(0, len(array), rows):
            text += b", " if start else b""
            text += memoryview(_numbers(array[start : start + rows], kind))[1:-1]
    text += b"]"


def _rows(array: Array) -> list[Array]:
    # As arrays throughout: the elements of an array of objects would be bytes.
    return [array[position, ...] for position in range(array.shape[0])]


def _strings(name: str, array: Array) -> list[bytes]:
    leaves = array.reshape(-1).tolist()
    if not name.endswith("_bytes"):
        return [quote(each) for each in leaves]
    return [b'{"b64": "' + base64.b64encode(each) + b'"}' for each in leaves]


def nested(leaves: Sequence[bytes], shape: tuple[int, ...]) -> bytes:
    """The lists of a shape, of leaves that are JSON already."""
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
