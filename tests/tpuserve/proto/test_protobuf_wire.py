"""Varints, fields and string contents, byte by byte."""

import pytest

from tpuserve.proto import protobuf_wire


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, b"\x00"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (300, b"\xac\x02"),
        (2**32, b"\x80" * 4 + b"\x10"),
    ],
)
def test_varint_survives_encoding_and_decoding(number: int, encoded: bytes) -> None:
    assert protobuf_wire.encode_varint(number) == encoded
    assert protobuf_wire.decode_varint(b"?" + encoded + b"?", 1) == (number, 1 + len(encoded))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 11])
def test_unterminated_varint_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="varint"):
        protobuf_wire.decode_varint(data, 0)


def test_field_has_its_tag_and_its_length() -> None:
    assert protobuf_wire.encode_field(protobuf_wire.field_tag(16), b"ab") == b"\x82\x01\x02ab"


def test_lengths_precede_the_strings() -> None:
    assert protobuf_wire.decode_string_content(b"\x01\x00\x02abc", 3) == [b"a", b"", b"bc"]


@pytest.mark.parametrize(("data", "count"), [(b"\x01", 1), (b"\x01ab", 1), (b"\x01a", 9)])
def test_strings_with_wrong_lengths_are_refused(data: bytes, count: int) -> None:
    with pytest.raises(ValueError, match="strings|varint"):
        protobuf_wire.decode_string_content(data, count)
