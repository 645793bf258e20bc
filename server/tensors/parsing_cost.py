"""Bounds the memory and the time that parsing a request takes, before it is parsed.

Protobuf takes a fixed number of bytes and some processor time for each field and each message,
however few bytes they have in serialised form. During this time it holds Python's global
interpreter lock (GIL), so that the server answers nothing else.
"""

from typing import TypeAlias

from server.tensors import protobuf_wire
from tpuserve.errors import RequestTooLarge

Fields: TypeAlias = "dict[int, Fields | int]"
"""The fields of a message that may be long: number → fields of its message, or a factor.

The factor is the largest number of bytes that a byte of the serialised field becomes.
"""

_COPIED, _VARINTS = 1, 8
# The fields of a TensorProto that hold values. A parsed field takes the bytes of its serialised
# form or, if it holds packed varints, up to eight times as many.
_TENSOR: Fields = {
    **dict.fromkeys((4, 5, 6, 8, 9, 11, 12), _COPIED),
    **dict.fromkeys((7, 10, 13, 16, 17), _VARINTS),
}
PREDICT_REQUEST: Fields = {2: {2: _TENSOR}}
"""The fields of a PredictRequest: its inputs are map entries with a tensor each."""
EXAMPLES_REQUEST: Fields = {2: {1: {1: _COPIED}, 2: {1: _COPIED, 2: _COPIED}}}
"""The fields of a request with an Input message: a list of examples, which may have a context."""

# The largest number of fields of a request, which protobuf parses in a tenth of a second. A request
# with more is refused.
_MAX_FIELDS = 1_000_000
# The largest size of a field that is not in `Fields`, such as a name or a shape, in bytes. A
# request with a larger one is refused.
_MAX_OTHER_BYTES = 1 << 16
# Upper bounds: the memory of a parsed field without its content, in bytes, and the memory that a
# byte of any serialised message takes when it is parsed.
_FIELD_BYTES, _MAX_FACTOR = 64, 32
# For messages of at most this number of bytes, a rough bound is computed from the size alone.
_SMALL_BYTES = 1 << 11


def bound_parsed_bytes(serialized: bytes, fields: Fields) -> int:
    """Return an upper bound of the memory of a parsed message, in bytes.

    Args:
      serialized: the serialised message, which need not be valid.
      fields: the fields of the message that may be long.

    Raises:
      RequestTooLarge: the message has so many fields that parsing would take too long, or a long
        field that is not in `fields`.
    """
    if len(serialized) <= _SMALL_BYTES:
        return len(serialized) * _MAX_FACTOR
    num_bytes = num_fields = position = 0
    # The messages around the position, the outermost first: their fields, and where they end.
    messages = [(fields, len(serialized))]
    try:
        while messages:
            fields, end = messages[-1]
            if position >= end:
                messages.pop()
                continue
            num_fields += 1
            if num_fields > _MAX_FIELDS:
                raise RequestTooLarge(
                    f"the request has more than {_MAX_FIELDS} fields. Send less at a time."
                )
            tag, position = protobuf_wire.decode_varint(serialized, position)
            number, wire_type = tag >> 3, tag & 7
            if wire_type != protobuf_wire.WIRE_TYPE_LEN:
                position = _skip(serialized, position, wire_type)
                continue
            length, position = protobuf_wire.decode_varint(serialized, position)
            content = fields.get(number, _MAX_FACTOR)
            if isinstance(content, dict):
                messages.append((content, position + length))
                continue
            if number not in fields and length > _MAX_OTHER_BYTES:
                raise RequestTooLarge(
                    f"field {number} has {length} bytes, and may have {_MAX_OTHER_BYTES}."
                )
            num_bytes += length * content
            position += length
    except (ValueError, IndexError):
        # The message is invalid from here on. Add what the parser may read before it notices.
        num_bytes += max(0, len(serialized) - position) * _MAX_FACTOR
    return num_bytes + num_fields * _FIELD_BYTES


def _skip(serialized: bytes, position: int, wire_type: int) -> int:
    """Return the position after the value of a field that is not length-delimited."""
    if wire_type == 0:
        return protobuf_wire.decode_varint(serialized, position)[1]
    if wire_type not in (1, 5):
        raise ValueError("no wire type of the messages that are parsed")
    return position + (8 if wire_type == 1 else 4)
