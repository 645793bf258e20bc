"""Reads and writes protobuf's wire format, for code that does not use protobuf's parser.

Source: https://protobuf.dev/programming-guides/encoding.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]

WIRE_TYPE_VARINT, WIRE_TYPE_I64, WIRE_TYPE_LEN, WIRE_TYPE_I32 = 0, 1, 2, 5
"""The wire types: varints, fixed sizes of 8 bytes, length-delimited fields (bytes, strings,
messages and packed numbers), and fixed sizes of 4 bytes."""

_FIXED_SIZES = {WIRE_TYPE_I64: 8, WIRE_TYPE_I32: 4}
_MAX_TAG = 2**32 - 1

_MAX_VARINT_BYTES = 10
# The numbers that NumPy encodes, and the bytes that it decodes at a time, bound the memory of
# intermediate arrays. Python is faster for shorter lists.
_MIN_ARRAY_SIZE, _CHUNK_SIZE, _CHUNK_BYTES = 16, 1 << 14, 1 << 18
_VARINT_SHIFTS = np.arange(0, 64, 7, dtype=np.uint64)
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


def encode_varints(numbers: Sequence[int]) -> bytes:
    """Encode integers of 64 bits as varints; negative ones as their two's complement."""
    if len(numbers) < _MIN_ARRAY_SIZE:
        return b"".join([encode_varint(number % 2**64) for number in numbers])
    unsigned = np.array(numbers, np.int64).view(np.uint64)
    chunks = range(0, len(unsigned), _CHUNK_SIZE)
    return b"".join([_encode_chunk(unsigned[start : start + _CHUNK_SIZE]) for start in chunks])


def _encode_chunk(numbers: Array) -> bytes:
    # The groups of seven bits above the highest bit of a number are omitted, except the first.
    groups = numbers[:, np.newaxis] >> _VARINT_SHIFTS
    is_used = groups != 0
    is_used[:, 0] = True
    octets = (groups & np.uint64(0x7F)).astype(np.uint8)
    octets[:, :-1] |= is_used[:, 1:].astype(np.uint8) << 7
    return bytes(octets[is_used].tobytes())


def field_tag(field_number: int, wire_type: int = WIRE_TYPE_LEN) -> bytes:
    """Encode the tag of a field, which holds its number and wire type and precedes its value."""
    return encode_varint(field_number << 3 | wire_type)


def encode_field(tag: bytes, content: bytes) -> bytes:
    """Encode a length-delimited field: its tag, the length of its value, and its value.

    Args:
      content: the bytes of the value: a string, a serialised message, or packed numbers.
    """
    return b"".join((tag, encode_varint(len(content)), content))


class Field(NamedTuple):
    """The position of a field in a serialised message. Positions are indices of bytes."""

    number: int
    wire_type: int
    tag: int
    start: int
    end: int


def iterate_fields(data: bytes | memoryview, position: int, end: int) -> Iterator[Field]:
    """Iterate over the fields of a serialised message, without parsing nested messages."""
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


def decode_varints(octets: Array, dtype: np.dtype[Any], max_values: int) -> Array:
    """Decode protobuf varints to an array of shape [n].

    Args:
      octets: the bytes of the varints, uint8 of shape [size in bytes].
      dtype: the dtype of the result. High bits that do not fit are dropped, as in protobuf. For
        bool, all numbers except 0 are True.

    Raises:
      ValueError: the bytes end within a varint, or a varint has more than 10 bytes.
    """
    arrays, position, num_values = [np.empty(0, dtype)], 0, 0
    while position < len(octets) and num_values < max_values:
        chunk = octets[position : position + _CHUNK_BYTES]
        ends = np.flatnonzero(chunk < 0x80)[: max_values - num_values]
        if not len(ends):
            raise ValueError("no end of a varint")
        values = _decode_chunk(chunk, ends)
        arrays.append(values != 0 if dtype == np.bool_ else values.astype(dtype))
        position += int(ends[-1]) + 1
        num_values += len(ends)
    return np.concatenate(arrays)


def _decode_chunk(chunk: Array, ends: Array) -> Array:
    """Decode varints to an array of integers of shape [n]."""
    if len(ends) == ends[-1] + 1:
        # Here every varint has a single byte, and its value is that of the byte.
        return chunk[: len(ends)]
    starts = np.concatenate((np.zeros(1, ends.dtype), ends[:-1] + 1))
    sizes = ends - starts + 1
    largest = int(sizes.max())
    if largest > _MAX_VARINT_BYTES:
        raise ValueError("no end of a varint")
    values: Array = (chunk[starts] & 0x7F).astype(np.uint64)
    for index in range(1, largest):
        longer = np.flatnonzero(sizes > index)
        bits = (chunk[starts[longer] + index] & 0x7F).astype(np.uint64)
        values[longer] |= bits << np.uint64(7 * index)
    return values


def decode_string_content(data: bytes, count: int) -> list[bytes]:
    """Decode the field `tensor_content` of a TensorProto with strings.

    The content holds the length of each string as a varint, and then the bytes of all strings.
    Source: tensorflow/core/platform/tensor_coding.cc, DecodeStringList.
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
