"""Extracts large arrays of numbers from a JSON document before the document is parsed.

An ordinary parser creates a Python object for each number, which takes most of the time of a large
request.
"""

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import orjson
import simdjson

from server.servables.servable import Array

MIN_BYTES = 2048
"""The least size of an extracted array in bytes. Below this size, the general parser is as fast."""
# All bytes that can occur in a JSON array of numbers, except the brackets and commas.
_NOT_STRUCTURE = b"0123456789.+-eE \t\r\n"
# A document that holds one large array and little else is recognised without a search: the array
# must begin within this number of bytes from the start of the document, and end within this number
# of bytes from the end.
_EDGE_BYTES = 512
_NOT_NUMERIC = re.compile(rb"[^0-9eE+\-.,\[\] \t\r\n]")
# For each of the 256 values of a byte, whether the byte cannot occur in a JSON array of numbers.
_IS_NOT_NUMERIC = np.array([_NOT_NUMERIC.match(bytes([byte])) is not None for byte in range(256)])
# The number of bytes of the document that are searched for arrays at a time. The number bounds the
# memory of the intermediate arrays.
_CHUNK_BYTES = 1 << 16
_SEPARATORS = b", \t\r\n"
# The largest number of dimensions that an array can have in NumPy 1. Lists that are nested deeper
# are not extracted.
_MAX_RANK = 32

_FLOATS: dict[str, type[Any]] = {"float32": np.float32, "float64": np.float64}
_INTEGERS: dict[str, type[Any]] = {
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
}


class RawNumericArray:
    """A rectangular JSON array of numbers, parsed without a Python object for each number."""

    def __init__(self, text: bytes, shape: tuple[int, ...], parsed: Any) -> None:
        self._text = text
        self._shape = shape
        self._parsed = parsed

    def to_array(self, dtype: str) -> Array | None:
        """Convert the numbers to an array.

        Args:
          dtype: TensorFlow's name of the element type, for example "float32".

        Returns:
          The array.
          None if a number cannot be converted to the type, if an inner list is empty, or if the
          type is not supported: the caller then decodes the result of `tolist` element by element,
          which either succeeds or raises an error that names the number.
        """
        if dtype in _FLOATS:
            return self._convert("d", np.float64, _FLOATS[dtype])
        if dtype in _INTEGERS:
            return self._convert("i", np.int64, _INTEGERS[dtype])
        return None

    def tolist(self) -> Any:
        """Return the numbers as nested lists of Python numbers."""
        return orjson.loads(self._text)

    def _convert(self, kind: str, wide: type[Any], narrow: type[Any]) -> Array | None:
        try:
            array = np.frombuffer(self._parsed.as_buffer(of_type=kind), wide)
        except (TypeError, ValueError):
            return None
        if array.size != math.prod(self._shape):
            # Refuse an array with an empty list, because `_shape` is wrong for it: the shape is
            # computed from the brackets and commas alone, and so "[]" counts as one number.
            return None
        if wide is np.int64 and narrow is not np.int64:
            # For int8, int16, uint8 and int32, refuse numbers beyond 32 bits, as TensorFlow Serving
            # does. A smaller number that is still too large for the type loses its high bits.
            bounds = np.iinfo(np.int32)
            if array.min() < bounds.min or array.max() > bounds.max:
                return None
        # Numbers beyond the range of float32 become infinity, without a warning of NumPy.
        with np.errstate(over="ignore"):
            return array.astype(narrow, copy=False).reshape(self._shape)


def extract_numeric_arrays(body: bytes) -> tuple[bytes, list[RawNumericArray]] | None:
    """Replace each large array of numbers in a document by a placeholder: "@0", "@1" ...

    Returns:
      The document with the placeholders, and the arrays.
      None if the document has no large array, has a large array that simdjson cannot parse, or
      contains "@" outside of the arrays: the caller must then parse the original document.
    """
    region = _guess_single_region(body)
    extracted = _extract(body, [region]) if region else None
    return extracted or _extract(body, _find_regions(body))


def _extract(
    body: bytes, regions: Iterable[tuple[int, int]]
) -> tuple[bytes, list[RawNumericArray]] | None:
    arrays: list[RawNumericArray] = []
    rest: list[bytes] = []
    previous_end = 0
    for start, end in regions:
        array = _parse_array(body[start:end])
        if array is None:
            return None
        # Replace the array by a placeholder string.
        rest += [body[previous_end:start], b'"@%d"' % len(arrays)]
        arrays.append(array)
        previous_end = end
    rest.append(body[previous_end:])
    # Extract nothing if the document contains "@" outside of the arrays, because a string in the
    # document may look like a placeholder, such as "@0".
    if not arrays or any(b"@" in text or b"\\u0040" in text for text in rest[::2]):
        return None
    return b"".join(rest), arrays


def _guess_single_region(body: bytes) -> tuple[int, int] | None:
    # Assume that the document holds one large array and little else, as most large documents do,
    # and look for the brackets of this array only near the start and the end of the document.
    start = body.find(b"[", max(0, body.rfind(b'"', 0, _EDGE_BYTES)))
    edge = len(body) - _EDGE_BYTES
    other = _NOT_NUMERIC.search(body, edge)
    end = body.rfind(b"]", edge, other.start() if other else len(body)) + 1
    return (start, end) if 0 <= start < _EDGE_BYTES and end else None


def _find_regions(body: bytes) -> Iterator[tuple[int, int]]:
    """Find the parts of a document that may be large arrays of numbers."""
    octets = np.frombuffer(body, np.uint8)
    previous = -1
    for start in range(0, len(body), _CHUNK_BYTES):
        others = start + np.flatnonzero(_IS_NOT_NUMERIC[octets[start : start + _CHUNK_BYTES]])
        if start + _CHUNK_BYTES >= len(body):
            others = np.append(others, len(body))
        bounds = np.append(previous, others)
        for index in np.flatnonzero(np.diff(bounds) > MIN_BYTES):
            end = int(bounds[index + 1])
            first = body.find(b"[", int(bounds[index]) + 1, end)
            if 0 <= first <= end - MIN_BYTES:
                yield first, first + len(body[first:end].rstrip(_SEPARATORS))
        previous = bounds[-1]


def _parse_array(text: bytes) -> RawNumericArray | None:
    shape = _SHAPES.get_shape(text.translate(None, _NOT_STRUCTURE))
    if shape is None:
        return None
    try:
        # Create a new parser for each array, because a simdjson parser cannot parse again while the
        # result of an earlier parse is still in use.
        return RawNumericArray(text, shape, simdjson.Parser().parse(text))
    except (ValueError, RuntimeError):
        return None


class _ShapeCache:
    """Remembers the shapes of recent arrays, by the brackets and commas of their JSON text."""

    _MAX_ENTRIES, _MAX_BYTES = 4, 1 << 20

    def __init__(self) -> None:
        # Pairs (brackets and commas, shape). A change replaces the whole tuple, so that other
        # threads can read the tuple without a lock.
        self._entries: tuple[tuple[bytes, tuple[int, ...]], ...] = ()

    def get_shape(self, structure: bytes) -> tuple[int, ...] | None:
        for known_structure, shape in self._entries:
            if known_structure == structure:
                return shape
        computed = _compute_shape(structure)
        if computed is not None and len(structure) <= self._MAX_BYTES:
            self._entries = ((structure, computed), *self._entries)[: self._MAX_ENTRIES]
        return computed


def _compute_shape(structure: bytes) -> tuple[int, ...] | None:
    rank = len(structure) - len(structure.lstrip(b"["))
    if rank > _MAX_RANK:
        return None
    shape: list[int] = []
    inner = b""
    for level in reversed(range(rank)):
        # Find the end of the first list at this nesting level.
        end = structure.find(b"]" * (rank - level), level) if level else len(structure) - rank
        if end < 0:
            return None
        size = (end + rank - level - level - 1) // (len(inner) + 1)
        inner = b"[" + (inner + b",") * (size - 1) + inner + b"]"
        shape.insert(0, size)
    return tuple(shape) if inner == structure else None


_SHAPES = _ShapeCache()
