"""Extracts large arrays of numbers from a document before the document is parsed.

An ordinary parser creates a Python object for each number, and spends most of the time of a large
request on these objects. This module avoids them.
"""

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import orjson

from server.servables.servable import Array

# simdjson is an optional dependency. Without simdjson, large requests take longer.
simdjson: Any
try:
    import simdjson
except ImportError:
    simdjson = None

MIN_BYTES = 2048
"""The least size of an extracted array in bytes. Below, the general parser is as fast."""
_NOT_STRUCTURE = b"0123456789.+-eE \t\r\n"
# `_guess_single_region` assumes that the array begins within this number of bytes from the start of
# the document, and ends within this number from the end.
_EDGE_BYTES = 512
_NOT_NUMERIC = re.compile(rb"[^0-9eE+\-.,\[\] \t\r\n]")
# For each of the 256 values of a byte, whether the byte cannot be part of an array of numbers.
_IS_NOT_NUMERIC = np.array([_NOT_NUMERIC.match(bytes([byte])) is not None for byte in range(256)])
# The number of bytes that `_find_regions` classifies at a time: it bounds the memory of the
# intermediate arrays.
_CHUNK_BYTES = 1 << 16
_SEPARATORS = b", \t\r\n"
# The largest number of dimensions of an array in NumPy 1.
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
        """Wrap the text of an array and simdjson's parse of the text.

        Args:
          text: The JSON array.
          shape: The shape that the brackets and commas of the text imply.
          parsed: The simdjson array of the text.
        """
        self._text = text
        self._shape = shape
        self._parsed = parsed

    def to_array(self, dtype: str) -> Array | None:
        """Convert the numbers to an array.

        Args:
          dtype: TensorFlow's name of the element type, for example "float32".

        Returns:
          The array, or None if some number does not fit the type. The caller then decodes the
          result of `tolist` element by element, which raises an error that names the number.
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
            # Refuse text with empty lists. An empty list has the same brackets as a list of one
            # number, so the shape counts more numbers than there are.
            return None
        if wide is np.int64 and narrow is not np.int64:
            # Refuse numbers beyond 32 bits for all narrower integer types, as TensorFlow Serving
            # does. A number of 32 bits that is too large for the type loses its high bits.
            bounds = np.iinfo(np.int32)
            if array.min() < bounds.min or array.max() > bounds.max:
                return None
        with np.errstate(over="ignore"):  # Numbers beyond the type's range become infinity.
            return array.astype(narrow, copy=False).reshape(self._shape)


def extract_numeric_arrays(body: bytes) -> tuple[bytes, list[RawNumericArray]] | None:
    """Replace each large array of numbers in a document by a placeholder: "@0", "@1" ...

    Returns:
      The document with the placeholders, and the arrays. None if the document has no large array,
      or an array that simdjson cannot parse: the caller must then parse the original document.
    """
    if simdjson is None:
        return None
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
        # The numbers may be part of a string. Then the quotes of the placeholder make the document
        # invalid JSON, so that the caller parses the original document instead.
        rest += [body[previous_end:start], b'"@%d"' % len(arrays)]
        arrays.append(array)
        previous_end = end
    rest.append(body[previous_end:])
    # Extract nothing if the rest of the document contains "@", because a string in the rest may
    # look like a placeholder.
    if not arrays or any(b"@" in text or b"\\u0040" in text for text in rest[::2]):
        return None
    return b"".join(rest), arrays


def _guess_single_region(body: bytes) -> tuple[int, int] | None:
    # Guess that the document holds one array and little else, as most large documents do. Searching
    # the whole document would take as long as parsing it.
    start = body.find(b"[", max(0, body.rfind(b'"', 0, _EDGE_BYTES)))
    edge = len(body) - _EDGE_BYTES
    other = _NOT_NUMERIC.search(body, edge)
    end = body.rfind(b"]", edge, other.start() if other else len(body)) + 1
    return (start, end) if 0 <= start < _EDGE_BYTES and end else None


def _find_regions(body: bytes) -> Iterator[tuple[int, int]]:
    """Find the long stretches of a document that may be arrays of numbers.

    The time is proportional to the size of the document. A regular expression would take far longer
    for some documents, because it would search on from every bracket of a stretch that is too
    short.

    Yields:
      The start and the end of each stretch that begins with "[" and has at least `MIN_BYTES` bytes.
    """
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
        # Create a parser for each array: a simdjson parser cannot be reused while one of its
        # documents is alive.
        return RawNumericArray(text, shape, simdjson.Parser().parse(text))
    except (ValueError, RuntimeError):
        return None


class _ShapeCache:
    """Maps the brackets and commas of recent arrays to their shapes.

    Most requests to a server contain arrays of the same few shapes. Comparing the brackets takes a
    twentieth of the time of computing the shape.
    """

    _MAX_ENTRIES, _MAX_BYTES = 4, 1 << 20

    def __init__(self) -> None:
        # Replace the tuple of entries as a whole, so that threads can read it without a lock.
        self._entries: tuple[tuple[bytes, tuple[int, ...]], ...] = ()

    def get_shape(self, structure: bytes) -> tuple[int, ...] | None:
        """Return the shape of nested lists, or None if the lists are ragged.

        Args:
          structure: The text of the lists without anything but brackets and commas.
        """
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
        # The first list of a nesting level ends at the first run of (rank - level) closing
        # brackets. The outermost list ends with the text, so skip the search, which would take
        # long.
        end = structure.find(b"]" * (rank - level), level) if level else len(structure) - rank
        if end < 0:
            return None
        size = (end + rank - level - level - 1) // (len(inner) + 1)
        inner = b"[" + (inner + b",") * (size - 1) + inner + b"]"
        shape.insert(0, size)
    return tuple(shape) if inner == structure else None


_SHAPES = _ShapeCache()
