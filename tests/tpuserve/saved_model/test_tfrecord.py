"""Records are framed as TensorFlow frames them, and damage is reported with its position."""

from pathlib import Path

import pytest

from tests.tpuserve.saved_models import WORDS, tf_records
from tpuserve.saved_model import tfrecord, warm_up_file


def test_records_of_tensorflow_are_read_and_framed_alike() -> None:
    path = WORDS / warm_up_file.PATH
    records = list(tfrecord.read_records(path))
    assert len(records) == 2
    assert b"".join(map(tfrecord.frame_record, records)) == path.read_bytes()


def test_records_framed_together_are_those_framed_alone() -> None:
    contents = [b"", b"\xff", b"x" * 5000, b"\xff"]
    framed = b"".join(map(tfrecord.frame_record, contents))
    assert tfrecord.frame_records(contents) == framed
    assert tfrecord.frame_records([]) == b""


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(tf_records(b"one", b"", b"three"))
    assert list(tfrecord.read_records(tmp_path / "file")) == [b"one", b"", b"three"]


def test_empty_file_has_no_records(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert list(tfrecord.read_records(tmp_path / "file")) == []


def flip_bit(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


RECORDS = tf_records(b"first", b"second")


@pytest.mark.parametrize(
    ("content", "number", "reason"),
    [
        (RECORDS[:-1], 1, "the file ends 1 bytes too early"),
        (RECORDS[:25], 1, "the file ends within its length"),
        (flip_bit(RECORDS, 0), 0, "its length has a wrong checksum"),
        (flip_bit(RECORDS, 13), 0, "its content has a wrong checksum"),
        (flip_bit(RECORDS, len(RECORDS) - 1), 1, "its content has a wrong checksum"),
        (b"these are no records at all", 0, "its length has a wrong checksum"),
    ],
)
def test_damage_is_reported_with_the_position_of_the_record(
    tmp_path: Path, content: bytes, number: int, reason: str
) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(tfrecord.DamagedRecord) as error:
        list(tfrecord.read_records(tmp_path / "file"))
    assert (error.value.number, error.value.reason) == (number, reason)
    assert str(error.value) == f"record {number}: {reason}"
