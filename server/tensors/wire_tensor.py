"""The tensors of large requests, whose numbers are decoded directly from the serialised request.

Protobuf's parser holds Python's global interpreter lock (GIL) while it copies the values of a
tensor.
"""

import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from tensorflow.core.framework import tensor_pb2

from server.servables.servable import Array
from server.tensors import parsing_cost
from tpuserve.proto import protobuf_wire

Spans: TypeAlias = "array.array[int]"
"""The places of the values of one field in the serialised request, in order: start, end, start,
..."""


class NumericField(NamedTuple):
    """A field of TensorProto that holds numbers, such as `float_val`."""

    name: str
    dtype: np.dtype[Any]
    wire_type: int

    @property
    def is_varint(self) -> bool:
        """Whether the serialised values are varints; otherwise they have a fixed size."""
        return self.wire_type == protobuf_wire.WIRE_TYPE_VARINT

    @property
    def factor(self) -> int:
        """The largest number of bytes of the decoded array per byte of the serialised field."""
        return parsing_cost.VARINTS if self.is_varint else parsing_cost.COPIED

    @property
    def packed_bytes(self) -> int:
        """The size in bytes of a packed value; 1 for varints, which have different sizes.

        The length of a packed field, in bytes, must be a multiple of this number.
        """
        return 1 if self.is_varint else self.dtype.itemsize


NUMERIC_FIELDS = {
    number: NumericField(name, np.dtype(dtype), wire_type)
    for number, name, dtype, wire_type in (
        (5, "float_val", "<f4", protobuf_wire.WIRE_TYPE_I32),
        (6, "double_val", "<f8", protobuf_wire.WIRE_TYPE_I64),
        (7, "int_val", "i4", protobuf_wire.WIRE_TYPE_VARINT),
        (9, "scomplex_val", "<f4", protobuf_wire.WIRE_TYPE_I32),
        (10, "int64_val", "i8", protobuf_wire.WIRE_TYPE_VARINT),
        (11, "bool_val", "?", protobuf_wire.WIRE_TYPE_VARINT),
        (12, "dcomplex_val", "<f8", protobuf_wire.WIRE_TYPE_I64),
        (13, "half_val", "i4", protobuf_wire.WIRE_TYPE_VARINT),
        (16, "uint32_val", "u4", protobuf_wire.WIRE_TYPE_VARINT),
        (17, "uint64_val", "u8", protobuf_wire.WIRE_TYPE_VARINT),
    )
}
"""The fields of TensorProto with numbers, by their field numbers."""

_BY_NAME = {field.name: field for field in NUMERIC_FIELDS.values()}


class WireTensor:
    """A tensor of a large request, with those attributes of a TensorProto that conversion needs.

    `tensor_proto_to_array` converts it to an array.

    Attributes:
      tensor_content: the elements in the binary form of an array; empty if they are in a typed
        field.
      string_val: the elements of a tensor of strings; empty for other tensors.

    Args:
      rest: the serialised TensorProto with all fields that the other arguments do not contain.
      strings: the start and the end of each string in `serialized`, one pair after the other.
        The strings are copied.
      numbers: name of a numeric field → the start and the end of each piece of its values in
        `serialized`, one pair after the other.
    """

    def __init__(
        self,
        serialized: memoryview,
        rest: bytes,
        content: memoryview,
        strings: Spans,
        numbers: Mapping[str, Spans],
    ) -> None:
        proto = tensor_pb2.TensorProto.FromString(rest)
        self.dtype: int = proto.dtype
        self.tensor_shape = proto.tensor_shape
        self.tensor_content = content
        self.string_val = [bytes(serialized[start:end]) for start, end in _pairs(strings)]
        self._octets = np.frombuffer(serialized, np.uint8)
        self._numbers = numbers

    def read_numbers(self, name: str, max_values: int) -> Array:
        """Return the values of a numeric field of the tensor.

        Args:
          name: the name of the field, such as "float_val".
          max_values: the largest number of values to return. Further values are not decoded.
        """
        field = _BY_NAME[name]
        joined = self._join(self._numbers.get(name, ()))
        if field.is_varint:
            return protobuf_wire.decode_varints(joined, field.dtype, max_values)
        return joined.view(field.dtype)[:max_values]

    def _join(self, spans: Sequence[int]) -> Array:
        if len(spans) == 2:
            return self._octets[spans[0] : spans[1]]
        joined = np.empty(sum(end - start for start, end in _pairs(spans)), np.uint8)
        position = 0
        for start, end in _pairs(spans):
            joined[position : position + end - start] = self._octets[start:end]
            position += end - start
        return joined


def _pairs(spans: Sequence[int]) -> Iterator[tuple[int, int]]:
    places = iter(spans)
    return zip(places, places, strict=True)
