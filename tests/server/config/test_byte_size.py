"""Numbers of bytes are read with and without units, and written for people."""

import pytest

from server.config.byte_size import format_bytes, parse_bytes
from tpuserve.errors import InvalidSetting


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8GB", 8_000_000_000),
        ("512 mb", 512_000_000),
        ("1.5GiB", 1_610_612_736),
        ("2kb", 2_000),
        ("1T", 1_000_000_000_000),
        ("4096", 4_096),
        ("7B", 7),
    ],
)
def test_units_are_decimal_and_with_an_i_binary(text: str, expected: int) -> None:
    assert parse_bytes("--max_model_memory", text) == expected


@pytest.mark.parametrize("text", ["8 GBit", "-1GB", "much", "", "1,5GB", "1e9"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match="^--max_model_memory is .* Give a number of bytes"):
        parse_bytes("--max_model_memory", text)


def test_bytes_are_written_in_the_largest_unit_with_three_digits() -> None:
    assert [*map(format_bytes, (0, 999, 1_500, 12_345_678, 8_000_000_000))] == [
        *("0 B", "999 B", "1.5 kB", "12.3 MB", "8 GB"),
    ]
