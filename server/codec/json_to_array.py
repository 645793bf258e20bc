"""Converts JSON values to arrays, and refuses every value that TensorFlow Serving refuses."""

import base64
from collections.abc import Iterable, Set
from itertools import chain, compress, count, repeat
from operator import is_, is_not, ne
from typing import Any

import numpy as np

from server.codec.json_parser import Json, format_for_error, json_type_name
from server.codec.numeric_arrays import RawNumericArray
from server.servables.servable import Array
from tpuserve.errors import Code, CodedError, InvalidTensor
from tpuserve.saved_model import dtypes

# The largest number of dimensions that an array can have in NumPy 1. Lists that are nested deeper
# are refused.
_MAX_RANK = 32

_FLOATS = frozenset(("float32", "float64"))
_NUMBERS = frozenset((int, float))
_NESTED = frozenset((list, RawNumericArray))
# Lists of fewer numbers than this are checked for overflow with Python's min and max, which are
# faster than NumPy for short lists.
_FEW = 64
# A bound slightly below the largest float32. Numbers whose absolute values are below the bound do
# not round to infinity, so they are converted without np.errstate.
_MAX_FLOAT32 = 3.4e38
_INTEGERS: dict[str, type[Any]] = {
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "uint32": np.uint32,
    "uint64": np.uint64,
}
# TensorFlow Serving reads numbers of these types as 32-bit integers, and then drops their high bits
# without an error. This module does the same.
_NARROW = frozenset(("int8", "int16", "uint8"))


def decode_value(value: Json, dtype: str, *, explains_ragged: bool = True) -> Array:
    """Convert nested lists of JSON values to an array. A value outside of a list becomes a scalar.

    The first element at each nesting level implies the shape.

    Args:
      dtype: TensorFlow's name of the element type, for example "float32".
      explains_ragged: Whether the error for ragged lists (lists of different sizes or depths) names
        the first list or scalar that does not fit. Finding this item takes as long as decoding.
    """
    if type(value) is RawNumericArray:
        array = value.to_array(dtype)
        if array is not None:
            return array
        value = value.tolist()
    if type(value) is list and value:
        types = set(map(type, value))
        if not types & _NESTED:
            return _convert_leaves(value, types, dtype)
    shape = infer_shape(value)
    level = [value]
    for size in shape:
        types = set(map(type, level))
        if RawNumericArray in types:
            return decode_value(_expand_raw_arrays(value), dtype, explains_ragged=explains_ragged)
        if types != {list} or set(map(len, level)) != {size}:
            raise _ragged_error(value, shape, explains_ragged)
        level = list(chain.from_iterable(level))
    types = set(map(type, level))
    if RawNumericArray in types:
        array = _stack_raw_arrays(level, shape, dtype)
        return decode_value(_expand_raw_arrays(value), dtype) if array is None else array
    if list in types:
        raise _ragged_error(value, shape, explains_ragged)
    return _convert_leaves(level, types, dtype).reshape(shape)


def infer_shape(value: Json) -> tuple[int, ...]:
    """Return the shape of nested lists, from the size of the first list at each nesting level."""
    shape: list[int] = []
    while type(value) is list:
        if len(shape) == _MAX_RANK:
            raise InvalidTensor(
                f"Encountered list at unexpected level: {_MAX_RANK} expected < {_MAX_RANK}"
            )
        shape.append(len(value))
        if not value:
            break
        value = value[0]
    return tuple(shape)


def is_base64(value: Json) -> bool:
    """Return whether a value is an object {"b64": "..."}, which encodes bytes."""
    return type(value) is dict and len(value) == 1 and type(value.get("b64")) is str


def find_first(flags: Iterable[bool]) -> int | None:
    """Return the position of the first True; None if there is no True."""
    return next(compress(count(), flags), None)


def _stack_raw_arrays(level: list[Json], shape: tuple[int, ...], dtype: str) -> Array | None:
    """Stack separately parsed arrays of numbers (RawNumericArray) to one array."""
    arrays: list[Array] = []
    for item in level:
        array = item.to_array(dtype) if type(item) is RawNumericArray else None
        if array is None or (arrays and array.shape != arrays[0].shape):
            return None
        arrays.append(array)
    if len(shape) + arrays[0].ndim > _MAX_RANK:
        return None
    stacked: Array = np.stack(arrays).reshape((*shape, *arrays[0].shape))
    return stacked


def _expand_raw_arrays(value: Json) -> Json:
    """Replace the RawNumericArrays in nested lists by lists of numbers."""
    if type(value) is RawNumericArray:
        return value.tolist()
    return list(map(_expand_raw_arrays, value)) if type(value) is list else value


def decode_base64(text: str) -> bytes:
    """Decode base64 with or without padding."""
    try:
        return _decode_padded(text)
    except ValueError:
        pass  # The text may be valid base64 with line breaks, so decode it again without them.
    try:
        return _decode_padded("".join(text.split()))
    except ValueError as error:
        raise InvalidTensor("Unable to base64 decode") from error


def _decode_padded(text: str) -> bytes:
    """Decode base64 with or without padding; raise a ValueError if the text is not base64."""
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


def _convert_leaves(leaves: list[Json], types: Set[type], dtype: str) -> Array:
    if dtype in _FLOATS:
        if not types <= _NUMBERS:
            _check_types(leaves, types, _NUMBERS, dtype)
        return _to_floats(leaves, dtype)
    if dtype in _INTEGERS:
        _check_types(leaves, types, {int}, dtype)
        return _to_integers(leaves, dtype)
    if dtype == "bool":
        _check_types(leaves, types, {bool}, dtype)
        return np.array(leaves, np.bool_)
    if dtype == "string":
        _check_types(leaves, types, {str, dict}, dtype)
        return _to_strings(leaves)
    shown = format_for_error(leaves[0] if leaves else leaves)
    raise CodedError(
        f"Conversion of JSON Value: {shown} to type: {dtypes.runtime_name(dtype)}",
        Code.UNIMPLEMENTED,
    )


def _check_types(leaves: list[Json], types: Set[type], allowed: Set[type], dtype: str) -> None:
    if not types <= allowed:
        raise _type_mismatch(next(leaf for leaf in leaves if type(leaf) not in allowed), dtype)


def _to_floats(leaves: list[Json], dtype: str) -> Array:
    if dtype == "float64":
        return np.array(leaves, np.float64)
    # Convert small arrays without np.errstate, because np.errstate takes longer than all other work
    # for a small request.
    if 0 < len(leaves) < _FEW and min(leaves) > -_MAX_FLOAT32 and max(leaves) < _MAX_FLOAT32:
        return np.array(leaves, np.float32)
    doubles = np.array(leaves, np.float64)
    # Numbers beyond the range of float32 become infinity, without a warning of NumPy.
    with np.errstate(over="ignore"):
        return doubles.astype(np.float32)


def _to_integers(leaves: list[Json], dtype: str) -> Array:
    bounds = np.iinfo(np.int32 if dtype in _NARROW else _INTEGERS[dtype])
    if leaves:
        # Check the range with Python integers: NumPy 1 would convert an integer beyond the range of
        # the type to another number without an error.
        for extreme in (min(leaves), max(leaves)):
            if not int(bounds.min) <= extreme <= int(bounds.max):
                raise _type_mismatch(extreme, dtype)
    if dtype in _NARROW:
        return np.array(leaves, np.int32).astype(_INTEGERS[dtype])
    return np.array(leaves, _INTEGERS[dtype])


def _to_strings(leaves: list[Json]) -> Array:
    array = np.empty(len(leaves), object)
    array[:] = [_to_bytes(leaf) for leaf in leaves]
    return array


def _to_bytes(value: Json) -> bytes:
    if type(value) is str:
        # The parser has replaced each byte that is not UTF-8 by a lone surrogate (PEP 383). The
        # error handler "surrogateescape" converts the surrogates back to these bytes.
        return value.encode("utf-8", "surrogateescape")
    if not is_base64(value):
        raise _type_mismatch(value, "string")
    return decode_base64(value["b64"])


def _type_mismatch(value: Json, dtype: str) -> InvalidTensor:
    return InvalidTensor(
        f"JSON Value: {format_for_error(value)} Type: {json_type_name(value)} "
        f"is not of expected type: {dtypes.runtime_name(dtype)}"
    )


def _ragged_error(value: Json, shape: tuple[int, ...], explains: bool) -> InvalidTensor:
    """Return the error for the first list or scalar, in document order, that does not fit."""
    if not explains:
        return InvalidTensor("The lists are ragged")
    # Check one nesting level after the other, which takes far less time than visiting the items in
    # document order.
    error: InvalidTensor | None = None
    items = [value]
    for level, size in enumerate(shape):
        lists = items[: find_first(map(is_not, map(type, items), repeat(list)))]
        fitting = lists[: find_first(map(ne, map(len, lists), repeat(size)))]
        if len(fitting) < len(items):
            error = _shape_error(items[len(fitting)], shape, level)
        items = list(chain.from_iterable(fitting))
    position = find_first(map(is_, map(type, items), repeat(list)))
    if position is not None:
        error = _shape_error(items[position], shape, len(shape))
    assert error is not None
    return error


def _shape_error(item: Json, shape: tuple[int, ...], level: int) -> InvalidTensor:
    if type(item) is not list:
        return InvalidTensor(
            f"JSON Value: {format_for_error(item)} found at incorrect level: {level} "
            f"expected: {len(shape)}"
        )
    if level == len(shape):
        return InvalidTensor(
            f"Encountered list at unexpected level: {level} expected < {len(shape)}"
        )
    return InvalidTensor(
        f"Encountered list at unexpected size: {len(item)} at level: {level} "
        f"expected size: {shape[level]}"
    )
