"""TensorProto ↔ arrays: reading as the C++ runtime does it; writing is next door.

Source: tensorflow/core/framework/tensor.proto, tensor.cc.
"""

import math
from typing import Any, TypeAlias

import numpy as np
from tensorflow.core.framework import tensor_pb2

from server.servables.servable import Array
from server.tensors import protobuf_wire
from server.tensors.dtypes import BY_NUMBER, ElementType
from server.tensors.serializer import Part, encode, to_bytes, to_entry, to_parts
from tpuserve.errors import InvalidTensor

__all__ = ["Part", "decode", "encode", "to_bytes", "to_entry", "to_parts"]

TensorProto: TypeAlias = Any

# A proto of a few bytes may claim any shape, since a short list of values repeats its last one.
# What no message could carry in full is refused.
MAX_BYTES = 2**31 - 1

# Older releases of protobuf turn a list of values into an array one by one.
_HAS_ARRAYS = hasattr(tensor_pb2.TensorProto().float_val, "__array__")


def decode(proto: TensorProto, alias: str, max_bytes: int = MAX_BYTES) -> Array:
    """The array that a TensorProto holds, in either of its forms.

    A list of values shorter than the shape repeats its last value; an empty one is zeros.

    Args:
      alias: for the message of an error.
      max_bytes: of the array.

    Raises:
      InvalidTensor: an unknown type or shape, one that is too large, or bytes that do not fill it.
    """
    try:
        return _decode(proto, max_bytes)
    except (ValueError, KeyError, OverflowError, MemoryError) as error:
        raise InvalidTensor(f"tensor parsing error: {alias}") from error


def _decode(proto: TensorProto, max_bytes: int) -> Array:
    found = BY_NUMBER[proto.dtype]
    shape = _shape(proto.tensor_shape)
    count = math.prod(shape)
    if count * found.dtype.itemsize > max_bytes:
        raise ValueError("too large")
    content = proto.tensor_content
    if content and found.dtype.hasobject:
        flat = _objects(protobuf_wire.read_strings(content, count))
    elif content:
        flat = np.frombuffer(content, found.dtype)
        if len(flat) != count:
            raise ValueError("content of another size")
    else:
        flat = _fill(_read_values(getattr(proto, found.field), found), count)
    return flat.reshape(shape)


def _shape(proto: Any) -> tuple[int, ...]:
    shape = tuple([dimension.size for dimension in proto.dim])
    if proto.unknown_rank:
        raise ValueError("unknown rank")
    if shape and min(shape) < 0:
        raise ValueError("unknown dimension")
    return shape


def _read_values(values: Any, found: ElementType) -> Array:
    dtype = found.dtype
    if dtype.hasobject:
        return _objects(values)
    if found.parts is not None:
        parts = _array(values, found.field, found.parts)
        return parts[: len(parts) // 2 * 2].view(dtype)
    if found.bits is not None:
        return _array(values, found.field, np.int32).astype(found.bits).view(dtype)
    if found.field == "int_val":
        # Narrow types keep their low bits, as the C++ runtime does it.
        return _array(values, found.field, np.int32).astype(dtype)
    return _array(values, found.field, dtype)


def _array(values: Any, field: str, dtype: Any) -> Array:
    if len(values) < 32:
        # Faster for a few than numpy's looking for a protocol that they follow.
        return np.array(values[:], dtype)
    if _HAS_ARRAYS:
        return np.array(values, dtype)
    if field not in ("float_val", "double_val"):
        return np.fromiter(values, dtype, len(values))
    # Its bytes, once serialized, are those of the array.
    alone = tensor_pb2.TensorProto()
    getattr(alone, field).MergeFrom(values)
    size = len(values) * np.dtype(dtype).itemsize
    serialized = alone.SerializeToString()
    return np.frombuffer(serialized, np.dtype(dtype).newbyteorder("<"), -1, len(serialized) - size)


def _objects(values: Any) -> Array:
    array = np.empty(len(values), object)
    array[:] = list(values)
    return array


def _fill(values: Array, count: int) -> Array:
    if len(values) == count:
        return values
    if len(values) > count:
        return values[:count]
    if not len(values):
        return (
            np.full(count, b"", object) if values.dtype.hasobject else np.zeros(count, values.dtype)
        )
    filled = np.full(count, values[-1], values.dtype)
    filled[: len(values)] = values
    return filled
