"""TensorProto ↔ arrays.

Source: tensorflow/core/framework/tensor.proto, tensor.cc.
"""

import math
import sys
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from tensorflow.core.framework import tensor_pb2

from server.servable import Array
from tpuserve import dtypes
from tpuserve.errors import InvalidTensor, UnsupportedType

TensorProto: TypeAlias = Any

# A proto of a few bytes may claim any shape, since a short list of values repeats its last one.
# What no message could carry in full is refused.
_MAX_BYTES = 2**31 - 1

# Name of the type → its field of values, and the array that those values make.
_FIELDS: dict[str, tuple[str, Any]] = {
    "float32": ("float_val", np.float32),
    "float64": ("double_val", np.float64),
    "int8": ("int_val", np.int8),
    "int16": ("int_val", np.int16),
    "int32": ("int_val", np.int32),
    "int64": ("int64_val", np.int64),
    "uint8": ("int_val", np.uint8),
    "uint16": ("int_val", np.uint16),
    "uint32": ("uint32_val", np.uint32),
    "uint64": ("uint64_val", np.uint64),
    "bool": ("bool_val", np.bool_),
    "float16": ("half_val", np.float16),
    "bfloat16": ("half_val", ml_dtypes.bfloat16),
    "complex64": ("scomplex_val", np.complex64),
    "complex128": ("dcomplex_val", np.complex128),
    "string": ("string_val", object),
}
_NUMBERS = {name: number for number, name in dtypes.NAME_OF_NUMBER.items()}

# What the proto holds two by two, and what it holds as bits in wider integers.
_COMPLEX_PARTS = {"complex64": np.float32, "complex128": np.float64}
_BITS = {"half_val": np.uint16}

# Field of values → its tag as a packed field, where its bytes on the wire are the array's own.
_PACKED_TAGS = {"float_val": b"\x2a", "double_val": b"\x32", "bool_val": b"\x5a"}


def decode(proto: TensorProto, alias: str) -> Array:
    """The array that a TensorProto holds, in either of its forms.

    A list of values shorter than the shape repeats its last value; an empty one is zeros.

    Raises:
      InvalidTensor: an unknown type or shape, or bytes that do not fill the shape.
    """
    try:
        return _decode(proto)
    except (ValueError, KeyError, OverflowError, MemoryError) as error:
        raise InvalidTensor(f"tensor parsing error: {alias}") from error


def encode(array: Array) -> TensorProto:
    """A TensorProto with typed values: what old clients read, unlike tensor_content.

    Raises:
      UnsupportedType: a type that a TensorProto has no field for.
    """
    name = "string" if array.dtype == object else array.dtype.name
    if name not in _FIELDS:
        raise UnsupportedType(f"Failed to write tensor of type: {dtypes.runtime_name(name)}")
    field, _ = _FIELDS[name]
    proto = tensor_pb2.TensorProto(dtype=_NUMBERS[name])
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    if field in _PACKED_TAGS and array.size and sys.byteorder == "little":
        # Ten times faster than value by value.
        content = array.tobytes()
        proto.MergeFromString(_PACKED_TAGS[field] + _varint(len(content)) + content)
    else:
        getattr(proto, field).extend(_values(array.reshape(-1), name, field).tolist())
    return proto


def _decode(proto: TensorProto) -> Array:
    name = dtypes.NAME_OF_NUMBER[proto.dtype]
    field, element = _FIELDS[name]
    if proto.tensor_shape.unknown_rank:
        raise ValueError("unknown rank")
    shape = [dimension.size for dimension in proto.tensor_shape.dim]
    if any(size < 0 for size in shape):
        raise ValueError("unknown dimension")
    count = math.prod(shape)
    if count * np.dtype(element).itemsize > _MAX_BYTES:
        raise ValueError("too large")
    if proto.tensor_content and name != "string":
        flat = np.frombuffer(proto.tensor_content, element)
        if len(flat) != count:
            raise ValueError("content of another size")
    else:
        flat = _fill(_read_values(getattr(proto, field), name, element, field), count)
    return flat.reshape(shape)


def _read_values(values: Any, name: str, element: Any, field: str) -> Array:
    if name == "string":
        array = np.empty(len(values), object)
        array[:] = list(values)
        return array
    if name in _COMPLEX_PARTS:
        return np.array(values, _COMPLEX_PARTS[name]).view(element)
    if field in _BITS:
        return np.array(values, np.int64).astype(_BITS[field]).view(element)
    if field == "int_val":
        # Narrow types keep their low bits, as the C++ runtime does it.
        return np.array(values, np.int32).astype(element)
    return np.array(values, element)


def _fill(values: Array, count: int) -> Array:
    if len(values) >= count:
        return values[:count]
    if not len(values):
        return (
            np.full(count, b"", object) if values.dtype == object else np.zeros(count, values.dtype)
        )
    filled = np.full(count, values[-1], values.dtype)
    filled[: len(values)] = values
    return filled


def _values(flat: Array, name: str, field: str) -> Array:
    if name in _COMPLEX_PARTS:
        return flat.view(_COMPLEX_PARTS[name])
    return flat.view(_BITS[field]) if field in _BITS else flat


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
