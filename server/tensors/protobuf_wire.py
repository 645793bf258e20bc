"""Protobuf's wire format, as much of it as is worth writing by hand.

Source: https://protobuf.dev/programming-guides/encoding.
"""

LENGTH_DELIMITED = 2


_SMALL = [bytes((number,)) for number in range(0x80)]


def varint(number: int) -> bytes:
    """A number that is not negative, seven bits a byte."""
    if number < 0x80:
        return _SMALL[number]
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def tag(field: int, kind: int = LENGTH_DELIMITED) -> bytes:
    """What stands before the value of a field."""
    return varint(field << 3 | kind)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A number, and the position after it.

    Raises:
      ValueError: the data ends within it, or it has more than 64 bits.
    """
    number = 0
    for index, byte in enumerate(data[position : position + 10]):
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number, position + index + 1
    raise ValueError("no end of a varint")


def read_strings(data: bytes, count: int) -> list[bytes]:
    """Strings as C++ writes them into one: their lengths first, then all of their bytes.

    Raises:
      ValueError: the data is not of just so many strings.
    """
    if count > len(data):
        raise ValueError("fewer lengths than strings")
    lengths, position = [], 0
    for _ in range(count):
        length, position = read_varint(data, position)
        lengths.append(length)
    if position + sum(lengths) != len(data):
        raise ValueError("strings of another length")
    strings = []
    for length in lengths:
        strings.append(data[position : position + length])
        position += length
    return strings


def field(tag: bytes, content: bytes) -> bytes:
    """A field of bytes, of text or of a message."""
    return b"".join((tag, varint(len(content)), content))
