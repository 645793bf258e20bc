"""Arrays → TensorProto, as the C++ runtime writes it, only straight into bytes.

Half of a small reply's time would go into building messages; a large one would be copied value
by value.
"""

import math
import sys
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from tensorflow.core.framework import tensor_pb2

from server.servables.servable import Array
from server.tensors import protobuf_wire
from server.tensors.dtypes import BY_DTYPE, ElementType
from tpuserve.errors import UnsupportedType
from tpuserve.saved_model import dtypes

Part: TypeAlias = bytes | memoryview

_CONTENT_TAG = protobuf_wire.tag(4)
_KEY_TAG, _VALUE_TAG = protobuf_wire.tag(1), protobuf_wire.tag(2)
# Below it a copy of an array's bytes costs less than a view of them.
_SMALL_BYTES = 4096


def encode(array: Array) -> Any:
    """A TensorProto with typed values; errors as of `to_bytes`."""
    return tensor_pb2.TensorProto.FromString(to_bytes(array))


def to_bytes(array: Array, as_content: bool = False) -> bytes:
    """A serialized TensorProto; arguments and errors as of `to_parts`."""
    return b"".join(to_parts(array, as_content))


def to_parts(array: Array, as_content: bool = False) -> list[Part]:
    """A serialized TensorProto in pieces, so that a large array is copied once, by who joins them.

    Args:
      as_content: numbers as tensor_content, not as typed values, which are what old clients read.
        Strings are typed values always: no client in Python reads them as content.

    Raises:
      UnsupportedType: a type that a TensorProto has no field for.
    """
    found = BY_DTYPE.get(array.dtype)
    if found is None:
        name = dtypes.runtime_name(array.dtype.name)
        raise UnsupportedType(f"Failed to write tensor of type: {name}")
    header = _header(found.number, array.shape)
    if not array.size:
        return [header]
    if found.dtype.hasobject:
        return [header, *_strings(array, found.tag)]
    if as_content:
        return [header, _CONTENT_TAG, *_memory(array)]
    if found.is_raw and sys.byteorder == "little":
        return [header, found.tag, *_memory(array)]
    return [header, _numbers(array, found)]


def to_entry(tag: bytes, alias: str, array: Array, as_content: bool = False) -> list[Part]:
    """An entry of a map of tensors in pieces, as `PredictResponse.outputs` is; errors as above.

    Args:
      tag: of the map's field.
    """
    start = _start(tag, alias, array.dtype, array.shape, as_content)
    if start:
        return [start, array.tobytes() if array.nbytes < _SMALL_BYTES else _view(array)]
    tensor = to_parts(array, as_content)
    return [_entry_start(tag, alias, sum(map(len, tensor))), *tensor]


@lru_cache(maxsize=1024)
def _start(
    tag: bytes, alias: str, dtype: np.dtype[Any], shape: tuple[int, ...], as_content: bool
) -> bytes:
    """What comes before the bytes of an array; empty where they are not what is sent."""
    found = BY_DTYPE.get(dtype)
    size = math.prod(shape) * dtype.itemsize
    if found is None or dtype.hasobject or not size:
        return b""
    if not as_content and not (found.is_raw and sys.byteorder == "little"):
        return b""
    field = _CONTENT_TAG if as_content else found.tag
    header = _header(found.number, shape) + field + protobuf_wire.varint(size)
    return _entry_start(tag, alias, len(header) + size) + header


def _entry_start(tag: bytes, alias: str, size: int) -> bytes:
    # An entry of a map is a message with a key and a value.
    key = protobuf_wire.field(_KEY_TAG, alias.encode()) + _VALUE_TAG + protobuf_wire.varint(size)
    return tag + protobuf_wire.varint(len(key) + size) + key


def _memory(array: Array) -> tuple[Part, Part]:
    memory = _view(array)
    return protobuf_wire.varint(len(memory)), memory


def _view(array: Array) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


@lru_cache(maxsize=1024)
def _header(number: int, shape: tuple[int, ...]) -> bytes:
    proto = tensor_pb2.TensorProto(dtype=number)
    # Written for a scalar too, as C++ does.
    proto.tensor_shape.SetInParent()
    for size in shape:
        proto.tensor_shape.dim.add(size=size)
    return bytes(proto.SerializeToString())


def _strings(array: Array, tag: bytes) -> list[Part]:
    parts: list[Part] = []
    for each in array.reshape(-1).tolist():
        content = each if isinstance(each, bytes) else str(each).encode()
        parts += (tag, protobuf_wire.varint(len(content)), content)
    return parts


def _numbers(array: Array, found: ElementType) -> bytes:
    flat = array.reshape(-1)
    if found.bits is not None:
        flat = flat.view(found.bits)
    elif flat.min() >= 0 and flat.max() < 0x80:
        # One byte each on the wire.
        return protobuf_wire.field(found.tag, flat.astype("u1").tobytes())
    proto = tensor_pb2.TensorProto()
    getattr(proto, found.field).extend(flat.tolist())
    return bytes(proto.SerializeToString())
