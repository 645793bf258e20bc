"""Arrays as JSON text on one line."""

import base64
import math
import re
from collections.abc import Sequence

import numpy as np
import orjson

from server.codec import floats
from server.servable import Array
from tpuserve import dtypes
from tpuserve.errors import InvalidTensor

_KINDS = {np.dtype(object): "string"}
_KINDS.update((np.dtype(each), "float") for each in ("float32", "float64"))
_KINDS.update(
    (np.dtype(each), "other")
    for each in ("int8", "int16", "int32", "int64", "uint8", "uint32", "uint64", "bool")
)
# Up to so many floats are written faster one by one.
_FEW = 48
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


def encode(name: str, array: Array) -> bytes:
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
    if kind == "float" and 0 < array.size <= _FEW:
        written = floats.texts(array)
        if array.ndim == 1:
            return f"[{', '.join(written)}]".encode()
        return nested([each.encode() for each in written], array.shape)
    if not array.ndim:
        return encode(name, array.reshape(1))[1:-1]
    if not array.size:
        return nested([], array.shape)
    if kind == "float":
        return floats.encode(array)
    # orjson takes arrays in the machine's order of bytes and rows only.
    array = np.ascontiguousarray(array)
    return orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY).replace(b",", b", ")


def encode_each(name: str, array: Array) -> list[bytes]:
    """The JSON of each row of an array of one dimension or more.

    Raises:
      InvalidTensor: a type that JSON has no form for.
    """
    if array.dtype == object or not array.size:
        return [encode(name, row) for row in _rows(array)]
    opening, closing = b"[" * array.ndim, b"]" * array.ndim
    # Between numbers there is no bracket, so that this parts rows and nothing else.
    between = closing[1:] + b", " + opening[1:]
    rows = encode(name, array)[len(opening) : -len(closing)].split(between)
    return [opening[1:] + row + closing[1:] for row in rows] if array.ndim > 1 else rows


def quote(string: bytes) -> bytes:
    """A string of JSON; bytes that are no UTF-8 stay what they are."""
    return b'"' + _TO_ESCAPE.sub(_escape, string) + b'"'


def _escape(found: "re.Match[bytes]") -> bytes:
    character = found.group()
    return _ESCAPES.get(character) or b"\\u%04X" % ord(character)


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
