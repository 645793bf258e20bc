"""Converts TensorProtos to NumPy arrays with the rules of TensorFlow's C++ runtime.

Source: tensorflow/core/framework/tensor.proto, and `Tensor::FromProto` in
tensorflow/core/framework/tensor.cc.
"""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from tensorflow.core.framework import tensor_pb2

from server.servables.aligned_array import copy_aligned
from server.servables.servable import Array
from server.tensors.dtypes import BY_NUMBER, ElementType
from server.tensors.wire_tensor import WireTensor
from tpuserve.errors import InvalidTensor
from tpuserve.proto import protobuf_wire

TensorProto: TypeAlias = Any

MAX_BYTES = 2**31 - 1
"""The default limit of an array's size: the largest message that protobuf allows."""

# Whether repeated fields of the installed protobuf have the method `__array__`, which NumPy calls
# to convert them.
_HAS_ARRAYS = hasattr(tensor_pb2.TensorProto().float_val, "__array__")


MAX_REPEATED_BYTES = 1 << 24
"""The largest size of an array whose values are repeated to fill its shape."""

_MAX_STRINGS = 1_000_000
"""The largest number of strings of an array: as many as a request may have fields."""

_STRING_BYTES = 64
"""The number of bytes of memory that a string of an array takes besides its characters: its
reference, its object and the rounding of its size."""


def tensor_proto_to_array(
    proto: TensorProto | WireTensor,
    alias: str,
    max_bytes: int = MAX_BYTES,
    reserve: Callable[[int], object] = lambda num_bytes: None,
) -> Array:
    """Convert a TensorProto to an array.

    The values are in `tensor_content` or in a typed field such as `float_val`.

    Args:
      proto: the tensor: a parsed message, or a WireTensor, which refers to the bytes of a large
        request.
      max_bytes: the largest size of the array in bytes. A string counts as eight bytes.
      reserve: is called with the number of bytes to allocate before they are allocated; raises an
        error to refuse the request.

    Raises:
      InvalidTensor: the dtype is unknown, the shape is invalid or too large, the values cannot be
        decoded, or their number does not fit the shape.
    """
    try:
        return _to_array(proto, max_bytes, reserve)
    except (ValueError, KeyError, OverflowError, MemoryError) as error:
        raise InvalidTensor(f"tensor parsing error: {alias}") from error


def _to_array(
    proto: TensorProto | WireTensor, max_bytes: int, reserve: Callable[[int], object]
) -> Array:
    element_type = BY_NUMBER[proto.dtype]
    shape = _to_shape(proto.tensor_shape)
    count = math.prod(shape)
    if count * element_type.dtype.itemsize > max_bytes:
        raise ValueError("too large")
    content = proto.tensor_content
    if element_type.dtype.hasobject:
        if count > _MAX_STRINGS:
            raise ValueError("too many strings")
        num_strings = max(count if content else 0, len(proto.string_val))
        reserve(count * element_type.dtype.itemsize + num_strings * _STRING_BYTES + len(content))
    elif not content:
        reserve(count * element_type.dtype.itemsize)
    if content and element_type.dtype.hasobject:
        flat = _to_object_array(protobuf_wire.decode_string_content(bytes(content), count))
    elif content:
        flat = np.frombuffer(content, element_type.dtype)
        if len(flat) != count:
            raise ValueError("content of another size")
    else:
        num_values = count * (1 if element_type.parts is None else 2)
        values = _read_field(proto, element_type, num_values)
        if len(values) < num_values and count * element_type.dtype.itemsize > MAX_REPEATED_BYTES:
            raise ValueError("too many repeated values")
        flat = _fill(_typed_values(values, element_type), count)
    if isinstance(proto, WireTensor) and not element_type.dtype.hasobject:
        flat = copy_aligned(flat)
    return flat.reshape(shape)


def _read_field(proto: TensorProto | WireTensor, element_type: ElementType, max_values: int) -> Any:
    if isinstance(proto, WireTensor) and not element_type.dtype.hasobject:
        return proto.read_numbers(element_type.field, max_values)
    return getattr(proto, element_type.field)


def _to_shape(proto: Any) -> tuple[int, ...]:
    shape = tuple([dimension.size for dimension in proto.dim])
    if proto.unknown_rank:
        raise ValueError("unknown rank")
    if shape and min(shape) < 0:
        raise ValueError("unknown dimension")
    return shape


def _typed_values(values: Any, element_type: ElementType) -> Array:
    """Convert the values of a typed field, such as `float_val`, to an array of shape [n]."""
    dtype = element_type.dtype
    if dtype.hasobject:
        return _to_object_array(values)
    if element_type.parts is not None:
        parts = _numeric_array(values, element_type.field, element_type.parts)
        return parts[: len(parts) // 2 * 2].view(dtype)
    if element_type.bits is not None:
        bits = _numeric_array(values, element_type.field, np.int32)
        return bits.astype(element_type.bits).view(dtype)
    if element_type.field == "int_val":
        # Convert the values to int32 first, so that the conversion to a narrower type drops the
        # high bits, as in TensorFlow's C++ runtime.
        return _numeric_array(values, element_type.field, np.int32).astype(dtype)
    return _numeric_array(values, element_type.field, dtype)


def _numeric_array(values: Any, field: str, dtype: Any) -> Array:
    """Convert a repeated field of numbers to an array of shape [n], in the fastest way."""
    if isinstance(values, np.ndarray):
        return values.astype(dtype, copy=False)
    if len(values) < 32:
        # Convert few values through a list, which takes less time than NumPy's search for the
        # method `__array__`.
        return np.array(values[:], dtype)
    if _HAS_ARRAYS:
        return np.array(values, dtype)
    if field not in ("float_val", "double_val"):
        return np.fromiter(values, dtype, len(values))
    # Serialise a message that has only this field, and take the last bytes, which are the values in
    # binary form. That avoids a conversion of each value.
    message = tensor_pb2.TensorProto()
    getattr(message, field).MergeFrom(values)
    size = len(values) * np.dtype(dtype).itemsize
    serialized = message.SerializeToString()
    return np.frombuffer(serialized, np.dtype(dtype).newbyteorder("<"), -1, len(serialized) - size)


def _to_object_array(values: Any) -> Array:
    array = np.empty(len(values), object)
    array[:] = list(values)
    return array


def _fill(values: Array, count: int) -> Array:
    """Cut an array of shape [n] to `count` values, or extend it by repeating its last value."""
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
