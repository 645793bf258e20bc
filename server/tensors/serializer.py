"""Serialises arrays as TensorProtos without creating protobuf message objects.

Message objects would take half of the time of a small response, and would copy the values of a
large array one by one.

Sources: tensorflow/core/framework/tensor.proto, tensorflow/core/framework/tensor.cc;
https://protobuf.dev/programming-guides/encoding for packed fields and for maps.
"""

import math
import sys
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from tensorflow.core.framework import tensor_pb2

from server.servables.servable import Array
from server.tensors.dtypes import BY_DTYPE, ElementType
from tpuserve.errors import Code, CodedError
from tpuserve.proto import protobuf_wire
from tpuserve.saved_model import dtypes

Chunk: TypeAlias = bytes | memoryview
"""A part of a serialised message. A memoryview refers to the memory of an array."""

_TENSOR_CONTENT_TAG = protobuf_wire.field_tag(4)
# The protobuf tags of the key and the value of a map entry. In serialised form, a map is a repeated
# message with a key (field 1) and a value (field 2).
_KEY_TAG, _VALUE_TAG = protobuf_wire.field_tag(1), protobuf_wire.field_tag(2)
# An array with fewer bytes than this is copied, because that takes less time than creating a
# memoryview of the array.
_COPY_BELOW_BYTES = 4096


def array_to_tensor_proto(array: Array) -> Any:
    """Convert an array of any shape to a TensorProto that holds typed values."""
    return tensor_pb2.TensorProto.FromString(serialize_tensor(array))


def serialize_tensor(array: Array, as_content: bool = False) -> bytes:
    """Serialise an array of any shape as a TensorProto.

    Args:
      as_content: whether numbers are written to `tensor_content` instead of a typed field such as
        `float_val`.
    """
    return b"".join(serialize_chunks(array, as_content))


def serialize_chunks(array: Array, as_content: bool = False) -> list[Chunk]:
    """Serialise an array of any shape as a TensorProto, in chunks of bytes.

    The values of a large array are a separate chunk, which is a view of the memory of the array.

    Args:
      as_content: whether numbers are written to `tensor_content`.
    """
    element_type = BY_DTYPE.get(array.dtype)
    if element_type is None:
        name = dtypes.runtime_name(array.dtype.name)
        raise CodedError(f"Failed to write tensor of type: {name}", Code.UNIMPLEMENTED)
    header = _tensor_header(element_type.number, array.shape)
    if not array.size:
        return [header]
    if element_type.dtype.hasobject:
        return [header, *_string_chunks(array, element_type.tag)]
    if as_content:
        return [header, _TENSOR_CONTENT_TAG, *_memory_chunks(array)]
    if element_type.is_raw and sys.byteorder == "little":
        return [header, element_type.tag, *_memory_chunks(array)]
    return [header, _serialize_values(array, element_type)]


def serialize_map_entry(
    tag: bytes, alias: str, array: Array, as_content: bool = False
) -> list[Chunk]:
    """Serialise an array as one entry of a `map<string, TensorProto>`, in chunks of bytes.

    Args:
      tag: the protobuf tag of the map field, such as that of `PredictResponse.outputs`.
      as_content: whether numbers are written to `tensor_content` instead of a typed field such as
        `float_val`.
    """
    prefix = _map_entry_prefix(tag, alias, array.dtype, array.shape, as_content)
    if prefix:
        is_small = array.nbytes < _COPY_BELOW_BYTES
        return [prefix, array.tobytes() if is_small else _byte_view(array)]
    chunks = serialize_chunks(array, as_content)
    return [_map_entry_header(tag, alias, sum(map(len, chunks))), *chunks]


@lru_cache(maxsize=1024)
def _map_entry_prefix(
    tag: bytes, alias: str, dtype: np.dtype[Any], shape: tuple[int, ...], as_content: bool
) -> bytes:
    """Return the bytes of a serialised map entry that precede the values of the array."""
    element_type = BY_DTYPE.get(dtype)
    size = math.prod(shape) * dtype.itemsize
    if element_type is None or dtype.hasobject or not size:
        return b""
    if not as_content and not (element_type.is_raw and sys.byteorder == "little"):
        return b""
    values_tag = _TENSOR_CONTENT_TAG if as_content else element_type.tag
    tensor_prefix = (
        _tensor_header(element_type.number, shape) + values_tag + protobuf_wire.encode_varint(size)
    )
    return _map_entry_header(tag, alias, len(tensor_prefix) + size) + tensor_prefix


def _map_entry_header(tag: bytes, alias: str, value_size: int) -> bytes:
    key = protobuf_wire.encode_field(_KEY_TAG, alias.encode())
    key_and_value_tag = key + _VALUE_TAG + protobuf_wire.encode_varint(value_size)
    return (
        tag + protobuf_wire.encode_varint(len(key_and_value_tag) + value_size) + key_and_value_tag
    )


def _memory_chunks(array: Array) -> tuple[Chunk, Chunk]:
    """Return the length and the bytes of a length-delimited field that holds an array."""
    memory = _byte_view(array)
    return protobuf_wire.encode_varint(len(memory)), memory


def _byte_view(array: Array) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


@lru_cache(maxsize=1024)
def _tensor_header(dtype_number: int, shape: tuple[int, ...]) -> bytes:
    proto = tensor_pb2.TensorProto(dtype=dtype_number)
    # Mark `tensor_shape` as present, because TensorFlow's C++ runtime writes this field even for a
    # scalar. Protobuf omits the empty message that is a scalar's shape, unless it is marked.
    proto.tensor_shape.SetInParent()
    for size in shape:
        proto.tensor_shape.dim.add(size=size)
    return bytes(proto.SerializeToString())


def _string_chunks(array: Array, tag: bytes) -> list[Chunk]:
    """Serialise the elements of an object array as the field `string_val` of a TensorProto."""
    chunks: list[Chunk] = []
    for element in array.reshape(-1).tolist():
        content = element if isinstance(element, bytes) else str(element).encode()
        chunks += (tag, protobuf_wire.encode_varint(len(content)), content)
    return chunks


def _serialize_values(array: Array, element_type: ElementType) -> bytes:
    """Serialise an array as a typed field whose values are varints, such as `int_val`."""
    flat = array.reshape(-1)
    if element_type.bits is not None:
        flat = flat.view(element_type.bits)
    elif flat.min() >= 0 and flat.max() < 0x80:
        # If all values are below 128, write each as one byte, which is its varint. That is faster
        # than protobuf.
        return protobuf_wire.encode_field(element_type.tag, flat.astype("u1").tobytes())
    proto = tensor_pb2.TensorProto()
    getattr(proto, element_type.field).extend(flat.tolist())
    return bytes(proto.SerializeToString())
