"""Reads and writes protobuf's wire format, for code that does not use protobuf's parser.

Source: https://protobuf.dev/programming-guides/encoding.
"""

from collections.abc import Iterator
from typing import NamedTuple

WIRE_TYPE_VARINT, WIRE_TYPE_I64, WIRE_TYPE_LEN, WIRE_TYPE_I32 = 0, 1, 2, 5
"""The wire types: varints, fixed sizes of 8 bytes, length-delimited fields (bytes, strings,
messages and packed numbers), and fixed sizes of 4 bytes."""

_FIXED_SIZES = {WIRE_TYPE_I64: 8, WIRE_TYPE_I32: 4}
_MAX_TAG = 2**32 - 1

_ONE_BYTE_VARINTS = [bytes((number,)) for number in range(0x80)]


def encode_varint(number: int) -> bytes:
    """Encode a non-negative integer as a varint: seven bits per byte, the lowest bits first."""
    if number < 0x80:
        return _ONE_BYTE_VARINTS[number]
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def field_tag(field_number: int, wire_type: int = WIRE_TYPE_LEN) -> bytes:
    """Encode the tag of a field, which holds its number and wire type and precedes its value."""
    return encode_varint(field_number << 3 | wire_type)


def encode_field(tag: bytes, content: bytes) -> bytes:
    """Encode a length-delimited field: its tag, the length of its value, and its value.

    Args:
      tag: the field's tag, from `field_tag`.
      content: the bytes of the value: a string, a serialised message, or packed numbers.
    """
    return b"".join((tag, encode_varint(len(content)), content))


class Field(NamedTuple):
    """The position of a field in a serialised message. Positions are indices of bytes.

    Attributes:
      number: the field number.
      wire_type: the wire type of the field.
      tag: the position of the first byte of the field, where its tag begins.
      start: the position of the first byte of the value. For a length-delimited field, this is
        after the length.
      end: the position after the last byte of the value.
    """

    number: int
    wire_type: int
    tag: int
    start: int
    end: int


def iterate_fields(data: bytes | memoryview, position: int, end: int) -> Iterator[Field]:
    """Iterate over the fields of a serialised message, without parsing nested messages.

    Args:
      data: the bytes that contain the message.
      position: the position of the first byte of the message.
      end: the position after the last byte of the message.

    Raises:
      ValueError, IndexError: the message is invalid, or has a field of the deprecated type group.
    """
    while position < end:
        begin = position
        tag, position = decode_varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if not number or tag > _MAX_TAG:
            raise ValueError("no field number")
        if wire_type == WIRE_TYPE_LEN:
            length, start = decode_varint(data, position)
            position = start + length
        else:
            start, position = position, skip_value(data, position, wire_type)
        if position > end:
            raise ValueError("a field ends after its message")
        yield Field(number, wire_type, begin, start, position)


def skip_value(data: bytes | memoryview, position: int, wire_type: int) -> int:
    """Return the position after a value that is not length-delimited.

    Args:
      data: the bytes that contain the value.
      position: the position of the first byte of the value.
      wire_type: the wire type of the field.

    Raises:
      ValueError: the varint is invalid, or the wire type is neither varint, I64 nor I32.
    """
    if wire_type == WIRE_TYPE_VARINT:
        return decode_varint(data, position)[1]
    if wire_type not in _FIXED_SIZES:
        raise ValueError("no wire type of the messages that are parsed")
    return position + _FIXED_SIZES[wire_type]


def decode_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Decode the varint that begins at a position of some bytes.

    Returns:
      The decoded number, and the position after the varint.

    Raises:
      ValueError: the data ends within the varint, or the varint is longer than 10 bytes.
    """
    if position < len(data) and data[position] < 0x80:
        return data[position], position + 1
    number = 0
    for index, byte in enumerate(data[position : position + 10]):
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number, position + index + 1
    raise ValueError("no end of a varint")


def decode_string_content(data: bytes, count: int) -> list[bytes]:
    """Decode the field `tensor_content` of a TensorProto with strings.

    The content holds the length of each string as a varint, and then the bytes of all strings.
    Source: tensorflow/core/platform/tensor_coding.cc, DecodeStringList.

    Args:
      data: the bytes of the field.
      count: the number of strings.

    Raises:
      ValueError: the content does not hold exactly `count` strings.
    """
    if count > len(data):
        raise ValueError("fewer lengths than strings")
    lengths, position = [], 0
    for _ in range(count):
        length, position = decode_varint(data, position)
        lengths.append(length)
    if position + sum(lengths) != len(data):
        raise ValueError("the lengths of the strings do not add up to the content's size")
    strings = []
    for length in lengths:
        strings.append(data[position : position + length])
        position += length
    return strings
