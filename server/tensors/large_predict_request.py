"""Reads large PredictRequests without copying the numbers in their tensors.

Source: tensorflow_serving/apis/predict.proto, tensorflow/core/framework/tensor.proto, and
https://protobuf.dev/programming-guides/encoding. A field can occur several times in a message. As
in a protobuf parser, the last value counts for a scalar field, the values of a repeated field are
joined, and messages in the same field are merged.
"""

import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError
from tensorflow_serving.apis import predict_pb2

from server.tensors import parsing_cost
from server.tensors.parsing_cost import ParsingCost
from server.tensors.wire_tensor import NUMERIC_FIELDS, Spans, WireTensor
from tpuserve.proto import protobuf_wire
from tpuserve.proto.protobuf_wire import WIRE_TYPE_LEN, Field

Message: TypeAlias = Any
Reserve: TypeAlias = Callable[[int], object]

# The numbers of the fields that this module reads: `inputs` of a PredictRequest, `key` and `value`
# of an entry of this map, and `tensor_content` and `string_val` of a TensorProto.
_INPUTS, _KEY, _VALUE, _CONTENT, _STRINGS = 2, 1, 2, 4, 8


@dataclass(frozen=True)
class LargePredictRequest:
    """A PredictRequest whose inputs still refer to the serialised bytes."""

    message: Message
    inputs: Mapping[str, WireTensor]


def read_predict_request(serialized: bytes | memoryview, reserve: Reserve) -> LargePredictRequest:
    """Read a serialised PredictRequest. The resulting tensors refer to its bytes.

    Args:
      reserve: is called with the number of bytes of memory that the parsed request takes, before
        they are allocated; raises an error to refuse the request.

    Raises:
      RequestTooLarge: the message has too many fields, or a field other than tensor values, such as
        a name, is too long.
    """
    reader = _Reader(memoryview(serialized))
    try:
        message, tensors = reader.read_request()
        reserve(reader.cost.num_bytes)
        inputs = {name: tensor.build() for name, tensor in tensors.items()}
    except (ValueError, IndexError) as error:
        raise DecodeError(str(error)) from error
    return LargePredictRequest(message, inputs)


class _Reader:
    """Reads the fields of one serialised request, and adds up the cost of parsing them."""

    def __init__(self, serialized: memoryview) -> None:
        self.serialized = serialized
        self.cost = ParsingCost()

    def read_request(self) -> tuple[Message, dict[str, "_TensorFields"]]:
        rest, tensors = bytearray(), {}
        for field in protobuf_wire.iterate_fields(self.serialized, 0, len(self.serialized)):
            if field.wire_type == WIRE_TYPE_LEN and field.number == _INPUTS:
                self.cost.add_field()
                name, tensor = self._read_entry(field)
                tensors[name] = tensor
            else:
                rest += self.copy_other_field(field)
        return predict_pb2.PredictRequest.FromString(bytes(rest)), tensors

    def _read_entry(self, entry: Field) -> tuple[str, "_TensorFields"]:
        name, tensor = b"", _TensorFields(self)
        for field in protobuf_wire.iterate_fields(self.serialized, entry.start, entry.end):
            if field.wire_type == WIRE_TYPE_LEN and field.number == _VALUE:
                self.cost.add_field()
                tensor.read(field)
                continue
            self.copy_other_field(field)
            if field.wire_type == WIRE_TYPE_LEN and field.number == _KEY:
                name = bytes(self.view(field))
        return name.decode(), tensor

    def view(self, field: Field) -> memoryview:
        """Return a view of the serialised value of a field, without the field's tag and length."""
        return self.serialized[field.start : field.end]

    def copy_other_field(self, field: Field) -> memoryview:
        """Return the bytes of a field that holds no tensor values, and add its parsing cost."""
        self.cost.add_other_field(field.number, field.end - field.start)
        return self.serialized[field.tag : field.end]


class _TensorFields:
    """The fields of one input tensor, collected from all its parts in the serialised request."""

    def __init__(self, reader: _Reader) -> None:
        self._reader = reader
        self._rest = bytearray()
        self._content = memoryview(b"")
        self._strings: Spans = array.array("q")
        self._numbers: dict[str, Spans] = {}

    def read(self, tensor: Field) -> None:
        """Add the fields of a serialised TensorProto."""
        reader = self._reader
        cost = reader.cost
        for field in protobuf_wire.iterate_fields(reader.serialized, tensor.start, tensor.end):
            number, wire_type, length = field.number, field.wire_type, field.end - field.start
            numeric = NUMERIC_FIELDS.get(number)
            if wire_type == WIRE_TYPE_LEN and number in (_CONTENT, _STRINGS):
                cost.add_field(length * parsing_cost.COPIED)
                if number == _CONTENT:
                    self._content = reader.view(field)
                else:
                    self._strings.extend((field.start, field.end))
            elif numeric is not None and wire_type in (WIRE_TYPE_LEN, numeric.wire_type):
                cost.add_field(length * numeric.factor)
                if length % numeric.packed_bytes:
                    raise ValueError("no whole number of packed values")
                spans = self._numbers.setdefault(numeric.name, array.array("q"))
                spans.extend((field.start, field.end))
            else:
                self._rest += reader.copy_other_field(field)

    def build(self) -> WireTensor:
        return WireTensor(
            self._reader.serialized,
            bytes(self._rest),
            self._content,
            self._strings,
            self._numbers,
        )
