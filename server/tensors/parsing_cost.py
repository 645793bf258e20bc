"""Bounds the memory and time for parsing a protobuf message, before the message is parsed.

Protobuf's parser takes a fixed amount of memory and some processor time for each field and each
message, even if they have only a few bytes in serialised form.
"""

from typing import TypeAlias

from tpuserve.errors import RequestTooLarge
from tpuserve.proto import protobuf_wire

Fields: TypeAlias = "dict[int, Fields | int]"
"""The fields of a message that may be long: field number → Fields of a nested message, or a
factor."""

COPIED, VARINTS = 1, 8
"""The factors of a field whose bytes are copied, and of a field of packed varints."""
# The fields of a TensorProto that hold values. A parsed field takes as many bytes of memory as the
# serialised field, except a field of packed varints, which takes up to eight times as many.
_TENSOR: Fields = {
    **dict.fromkeys((4, 5, 6, 8, 9, 11, 12), COPIED),
    **dict.fromkeys((7, 10, 13, 16, 17), VARINTS),
}
PREDICT_REQUEST: Fields = {2: {2: _TENSOR}}
"""The fields of a PredictRequest that may be long: the values of its input tensors."""
EXAMPLES_REQUEST: Fields = {2: {1: {1: COPIED}, 2: {1: COPIED, 2: COPIED}}}
"""The fields of a classify or regress request that may be long: its examples and their context."""

# The largest number of fields of a request. Protobuf parses this number of fields in a tenth of a
# second. A request with more fields is refused.
_MAX_FIELDS = 1_000_000
# Two limits in bytes for the fields of a request that hold neither tensor values nor examples, such
# as names and shapes: for one such field, and for all of them together.
_MAX_OTHER_BYTES, _MAX_ALL_OTHER_BYTES = 1 << 16, 1 << 20
# Upper bounds of the memory of parsed data: _FIELD_BYTES is the number of bytes that a field takes
# in addition to its content. _MAX_FACTOR is the number of bytes that a message takes per serialised
# byte, whatever its fields are.
_FIELD_BYTES, _MAX_FACTOR = 64, 32
# For a message of at most this number of bytes, a rough bound is computed from its size, without
# reading its fields.
_SMALL_BYTES = 1 << 11


class ParsingCost:
    """Adds up what it costs to parse the fields of one message.

    Attributes:
      num_bytes: an upper bound of the memory that the fields added so far take when parsed, in
        bytes.
    """

    def __init__(self) -> None:
        self.num_bytes = self._num_fields = self._num_other_bytes = 0

    def add_field(self, content_bytes: int = 0) -> None:
        """Add a field whose parsed content takes `content_bytes` bytes of memory.

        Raises:
          RequestTooLarge: the message has so many fields that parsing would take too long.
        """
        self._num_fields += 1
        self.num_bytes += content_bytes + _FIELD_BYTES
        if self._num_fields > _MAX_FIELDS:
            raise RequestTooLarge(
                f"the request has more than {_MAX_FIELDS} fields. Send less at a time."
            )

    def add_other_field(self, number: int, length: int) -> None:
        """Add a field that holds no tensor values, such as a name, and must not be long.

        Args:
          length: the size of the serialised value in bytes.

        Raises:
          RequestTooLarge: the message has too many fields, or this field alone or all such fields
            together are too long.
        """
        self.add_field(length * _MAX_FACTOR)
        self._num_other_bytes += length
        if length > _MAX_OTHER_BYTES:
            raise RequestTooLarge(
                f"field {number} has {length} bytes, and may have {_MAX_OTHER_BYTES}."
            )
        if self._num_other_bytes > _MAX_ALL_OTHER_BYTES:
            raise RequestTooLarge(
                f"names and shapes have more than {_MAX_ALL_OTHER_BYTES} bytes together. Send less "
                f"at a time."
            )


def bound_parsed_bytes(serialized: bytes | memoryview, fields: Fields) -> int:
    """Return an upper bound of the memory that a message takes when parsed, in bytes.

    Args:
      fields: the numbers of those fields of the message that are allowed to be long, because they
        hold tensor values or examples.
    """
    if len(serialized) <= _SMALL_BYTES:
        return len(serialized) * _MAX_FACTOR
    cost, position = ParsingCost(), 0
    # A stack of the nested messages that contain the current position, the outermost first.
    messages = [(fields, len(serialized))]
    try:
        while messages:
            fields, end = messages[-1]
            if position >= end:
                messages.pop()
                continue
            tag, position = protobuf_wire.decode_varint(serialized, position)
            number, wire_type = tag >> 3, tag & 7
            if wire_type != protobuf_wire.WIRE_TYPE_LEN:
                cost.add_field()
                position = protobuf_wire.skip_value(serialized, position, wire_type)
                continue
            length, position = protobuf_wire.decode_varint(serialized, position)
            content = fields.get(number)
            if isinstance(content, dict):
                cost.add_field()
                messages.append((content, position + length))
                continue
            if content is None:
                cost.add_other_field(number, length)
            else:
                cost.add_field(length * content)
            position += length
    except (ValueError, IndexError):
        # The message is invalid from this position on. Add an upper bound for the remaining bytes,
        # of which the parser may read some before it finds the error.
        return cost.num_bytes + max(0, len(serialized) - position) * _MAX_FACTOR
    return cost.num_bytes
