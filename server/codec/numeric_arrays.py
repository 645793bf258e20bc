"""Large arrays of numbers in a document, taken out of it before anything parses it.

A parser that makes a Python object of each number spends most of a large request on that.
"""

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import orjson

from server.servables.servable import Array

# An optional extra: without it everything works, large requests slower.
simdjson: Any
try:
    import simdjson
except ImportError:
    simdjson = None

# Below this the usual parser is as fast.
MIN_BYTES = 2048
_LETTERS = b"0123456789.+-eE \t\r\n"
_REGION = re.compile(rb"\[[0-9eE+\-.,\[\] \t\r\n]{%d,}" % MIN_BYTES)
# What stands around a large array is within so many bytes of either end.
_EDGE = 512
_OTHER = re.compile(rb"[^0-9eE+\-.,\[\] \t\r\n]")
_TRAILING = b", \t\r\n"
# numpy 1 has no arrays of more dimensions.
_MAX_RANK = 32

_FLOATS: dict[str, type[Any]] = {"float32": np.float32, "float64": np.float64}
_INTEGERS: dict[str, type[Any]] = {
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
}


class Numbers:
    """An array of numbers, still as text; its brackets and commas make a shape."""

    def __init__(self, text: bytes, shape: tuple[int, ...], parsed: Any) -> None:
        self._text = text
        self._shape = shape
        self._parsed = parsed

    def read(self, dtype: str) -> Array | None:
        """The array, or None where it is not one of the type: then `tolist` tells why."""
        if dtype in _FLOATS:
            return self._read("d", np.float64, _FLOATS[dtype])
        if dtype in _INTEGERS:
            return self._read("i", np.int64, _INTEGERS[dtype])
        return None

    def tolist(self) -> Any:
        """The numbers as lists of Python's."""
        return orjson.loads(self._text)

    def _read(self, kind: str, wide: type[Any], narrow: type[Any]) -> Array | None:
        try:
            array = np.frombuffer(self._parsed.as_buffer(of_type=kind), wide)
        except (TypeError, ValueError):
            return None
        if array.size != math.prod(self._shape):
            # An empty list and a list of one number leave the same brackets.
            return None
        if wide is np.int64 and narrow is not np.int64:
            # TensorFlow Serving asks that numbers fit 32 bits, of whatever narrower type.
            bounds = np.iinfo(np.int32)
            if array.min() < bounds.min or array.max() > bounds.max:
                return None
        with np.errstate(over="ignore"):  # beyond the type's range is infinity
            return array.astype(narrow, copy=False).reshape(self._shape)


def take_out(body: bytes) -> tuple[bytes, list[Numbers]] | None:
    """A document with each of its large arrays replaced by its position: "@0", "@1" ...

    Returns:
      The document that is left, and the arrays; None where there is nothing to gain, or
      something that only a look at each number can tell.
    """
    if simdjson is None:
        return None
    guess = _guess(body)
    guessed = guess and _take_out(body, [guess])
    return guessed or _take_out(body, _regions(body))


def _take_out(
    body: bytes, regions: Iterable[tuple[int, int]]
) -> tuple[bytes, list[Numbers]] | None:
    found: list[Numbers] = []
    left: list[bytes] = []
    end = 0
    for first, last in regions:
        numbers = _parse(body[first:last])
        if numbers is None:
            return None
        # Where the region is part of a string its quotes close that, and "@" is no JSON then.
        left += [body[end:first], b'"@%d"' % len(found)]
        found.append(numbers)
        end = last
    left.append(body[end:])
    # A string of the document's own must not be taken for a place of numbers.
    if not found or any(b"@" in each or b"\\u0040" in each for each in left[::2]):
        return None
    return b"".join(left), found


def _guess(body: bytes) -> tuple[int, int] | None:
    # Where the one large array is, in a document that has nothing else of length: to search
    # through all of it takes as long as to parse it.
    first = body.find(b"[", max(0, body.rfind(b'"', 0, _EDGE)))
    edge = len(body) - _EDGE
    other = _OTHER.search(body, edge)
    last = body.rfind(b"]", edge, other.start() if other else len(body)) + 1
    return (first, last) if 0 <= first < _EDGE and last else None


def _regions(body: bytes) -> Iterator[tuple[int, int]]:
    for found in _REGION.finditer(body):
        yield found.start(), found.start() + len(found.group().rstrip(_TRAILING))


def _parse(text: bytes) -> Numbers | None:
    shape = _SHAPES.of(text.translate(None, _LETTERS))
    if shape is None:
        return None
    try:
        # A parser of its own: one cannot be used again while what it has parsed is alive.
        return Numbers(text, shape, simdjson.Parser().parse(text))
    except (ValueError, RuntimeError):
        return None


class _Shapes:
    """The shapes seen last: most requests to a server are of the same few.

    A skeleton is compared in a twentieth of the time that it takes to work out its shape.
    """

    _MOST, _MAX_BYTES = 4, 1 << 20

    def __init__(self) -> None:
        # Replaced as a whole, so that threads read it without a lock.
        self._seen: tuple[tuple[bytes, tuple[int, ...]], ...] = ()

    def of(self, skeleton: bytes) -> tuple[int, ...] | None:
        """The shape of lists of which only brackets and commas are left; None where ragged."""
        for seen, shape in self._seen:
            if seen == skeleton:
                return shape
        found = _shape(skeleton)
        if found is not None and len(skeleton) <= self._MAX_BYTES:
            self._seen = ((skeleton, found), *self._seen)[: self._MOST]
        return found


def _shape(skeleton: bytes) -> tuple[int, ...] | None:
    rank = len(skeleton) - len(skeleton.lstrip(b"["))
    if rank > _MAX_RANK:
        return None
    shape: list[int] = []
    inner = b""
    for level in reversed(range(rank)):
        # The first list of a level ends where so many brackets close in a row; that of the
        # outermost with the text, and to search all of it would take as long as to parse it.
        end = skeleton.find(b"]" * (rank - level), level) if level else len(skeleton) - rank
        if end < 0:
            return None
        size = (end + rank - level - level - 1) // (len(inner) + 1)
        inner = b"[" + (inner + b",") * (size - 1) + inner + b"]"
        shape.insert(0, size)
    return tuple(shape) if inner == skeleton else None


_SHAPES = _Shapes()
