"""One JSON value → one array, exactly: nothing is converted that TensorFlow Serving refuses."""

import base64
import binascii
from collections.abc import Iterator, Set
from itertools import chain
from typing import Any

import numpy as np

from server.codec.json_parser import Json, show, type_name
from server.codec.numeric_arrays import Numbers
from server.servables.servable import Array
from tpuserve.errors import InvalidTensor, UnsupportedType
from tpuserve.saved_model import dtypes

# numpy 1 has no arrays of more dimensions.
_MAX_RANK = 32

_FLOATS = frozenset(("float32", "float64"))
_NUMBERS = frozenset((int, float))
_NESTED = frozenset((list, Numbers))
_FEW = 64
_MAX_SINGLE = 3.4e38
_INTEGERS: dict[str, type[Any]] = {
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "uint32": np.uint32,
    "uint64": np.uint64,
}
# What TensorFlow Serving reads as 32 bits, and narrows without a look.
_NARROW = frozenset(("int8", "int16", "uint8"))


def decode_value(value: Json, dtype: str) -> Array:
    """The array that nested lists of JSON values make.

    Its shape is that of the first element at each level; a bare value makes a scalar. Whole
    levels are looked at in one go: a look at each element would cost ten times as much.

    Args:
      value: lists in lists of numbers, booleans, strings or {"b64": "..."} objects.
      dtype: TensorFlow's name of the element type, "float32".

    Raises:
      InvalidTensor: ragged lists, or an element that is not of the type.
      UnsupportedType: JSON has no form for the type.
    """
    if type(value) is Numbers:
        array = value.read(dtype)
        if array is not None:
            return array
        value = value.tolist()
    if type(value) is list and value:
        types = set(map(type, value))
        if not types & _NESTED:
            return _convert(value, types, dtype)
    shape = shape_of(value)
    level = [value]
    for size in shape:
        types = set(map(type, level))
        if Numbers in types:
            return decode_value(_spelt_out(value), dtype)
        if types != {list} or set(map(len, level)) != {size}:
            raise _ragged(value, shape)
        level = list(chain.from_iterable(level))
    types = set(map(type, level))
    if Numbers in types:
        array = _stacked(level, shape, dtype)
        return decode_value(_spelt_out(value), dtype) if array is None else array
    if list in types:
        raise _ragged(value, shape)
    return _convert(level, types, dtype).reshape(shape)


def shape_of(value: Json) -> tuple[int, ...]:
    """The shape that the first element at each level implies.

    Raises:
      InvalidTensor: more levels than an array has dimensions.
    """
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
    """Whether an object stands for bytes: {"b64": "..."} and nothing else."""
    return type(value) is dict and len(value) == 1 and type(value.get("b64")) is str


def _stacked(level: list[Json], shape: tuple[int, ...], dtype: str) -> Array | None:
    # Lists of numbers that have not been read yet, if they all are and make one array.
    arrays = [each.read(dtype) if type(each) is Numbers else None for each in level]
    found = [each for each in arrays if each is not None]
    if len(found) < len(level) or len({each.shape for each in found}) > 1:
        return None
    if len(shape) + found[0].ndim > _MAX_RANK:
        return None
    stacked: Array = np.stack(found).reshape((*shape, *found[0].shape))
    return stacked


def _spelt_out(value: Json, level: int = 0) -> Json:
    # Only a document that is short without its numbers has some that have not been read. What
    # is deeper than an array can be is looked at by nobody.
    if type(value) is Numbers:
        return value.tolist()
    if type(value) is not list or level > _MAX_RANK:
        return value
    return [_spelt_out(each, level + 1) for each in value]


def decode_base64(text: str) -> bytes:
    """The bytes that base64 stands for, with its padding or without.

    Raises:
      InvalidTensor: no base64.
    """
    try:
        text = "".join(text.split())
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidTensor("Unable to base64 decode") from error


def _convert(leaves: list[Json], types: Set[type], dtype: str) -> Array:
    if dtype in _FLOATS:
        if not types <= _NUMBERS:
            _check_types(leaves, types, _NUMBERS, dtype)
        return _floats(leaves, dtype)
    if dtype in _INTEGERS:
        _check_types(leaves, types, {int}, dtype)
        return _integers(leaves, dtype)
    if dtype == "bool":
        _check_types(leaves, types, {bool}, dtype)
        return np.array(leaves, np.bool_)
    if dtype == "string":
        _check_types(leaves, types, {str, dict}, dtype)
        return _strings(leaves)
    shown = show(leaves[0] if leaves else leaves)
    raise UnsupportedType(
        f"Conversion of JSON Value: {shown} to type: {dtypes.runtime_name(dtype)}"
    )


def _check_types(leaves: list[Json], types: Set[type], allowed: Set[type], dtype: str) -> None:
    if not types <= allowed:
        raise _mismatch(next(each for each in leaves if type(each) not in allowed), dtype)


def _floats(leaves: list[Json], dtype: str) -> Array:
    if dtype == "float64":
        return np.array(leaves, np.float64)
    # To change what numpy warns of costs more than the rest of a small request.
    if 0 < len(leaves) < _FEW and min(leaves) > -_MAX_SINGLE and max(leaves) < _MAX_SINGLE:
        return np.array(leaves, np.float32)
    doubles = np.array(leaves, np.float64)
    with np.errstate(over="ignore"):  # beyond the type's range is infinity
        return doubles.astype(np.float32)


def _integers(leaves: list[Json], dtype: str) -> Array:
    bounds = np.iinfo(np.int32 if dtype in _NARROW else _INTEGERS[dtype])
    if leaves:
        # Compared as Python's integers: numpy 1 wraps what does not fit.
        for extreme in (min(leaves), max(leaves)):
            if not int(bounds.min) <= extreme <= int(bounds.max):
                raise _mismatch(extreme, dtype)
    if dtype in _NARROW:
        return np.array(leaves, np.int32).astype(_INTEGERS[dtype])
    return np.array(leaves, _INTEGERS[dtype])


def _strings(leaves: list[Json]) -> Array:
    array = np.empty(len(leaves), object)
    array[:] = [_bytes(each) for each in leaves]
    return array


def _bytes(value: Json) -> bytes:
    if type(value) is str:
        # Bytes that are no UTF-8 stand in it as lone surrogates; see
        # `server.codec.rapidjson_fallback`.
        return value.encode("utf-8", "surrogateescape")
    if not is_base64(value):
        raise _mismatch(value, "string")
    return decode_base64(value["b64"])


def _mismatch(value: Json, dtype: str) -> InvalidTensor:
    return InvalidTensor(
        f"JSON Value: {show(value)} Type: {type_name(value)} is not of expected type: "
        f"{dtypes.runtime_name(dtype)}"
    )


def _ragged(value: Json, shape: tuple[int, ...]) -> InvalidTensor:
    return next(_faults(value, shape, 0))


def _faults(value: Json, shape: tuple[int, ...], level: int) -> Iterator[InvalidTensor]:
    # In the order of the document: the places that do not have the shape.
    if type(value) is not list:
        if level != len(shape):
            yield InvalidTensor(
                f"JSON Value: {show(value)} found at incorrect level: {level} "
                f"expected: {len(shape)}"
            )
    elif level == len(shape):
        yield InvalidTensor(
            f"Encountered list at unexpected level: {level} expected < {len(shape)}"
        )
    elif len(value) != shape[level]:
        yield InvalidTensor(
            f"Encountered list at unexpected size: {len(value)} at level: {level} "
            f"expected size: {shape[level]}"
        )
    else:
        for each in value:
            yield from _faults(each, shape, level + 1)
