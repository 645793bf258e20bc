"""Reads and writes the records of TFRecord files.

Source: tensorflow/core/lib/io/record_writer.h. Each record is stored as its length (uint64), the
checksum of the length, the content, and the checksum of the content (uint32, little-endian).
"""

import os
import struct
from collections.abc import Iterator

import google_crc32c

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
FRAME_BYTES = _LENGTH.size + 2 * _CHECKSUM.size
"""The size of a record in a file beyond that of its content."""


class DamagedRecord(Exception):
    """A record is truncated, or its checksum is wrong.

    Attributes:
      number: the position of the record in the file, from 0.
      reason: the damage, as a clause without a period.
    """

    def __init__(self, number: int, reason: str) -> None:
        """Initialise the error with the position of the record and the damage."""
        super().__init__(f"record {number}: {reason}")
        self.number = number
        self.reason = reason


def frame_record(content: bytes) -> bytes:
    """Return a record as it is stored in a file: length and content with their checksums."""
    length = _LENGTH.pack(len(content))
    return b"".join((length, _checksum(length), content, _checksum(content)))


def read_records(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Yield the content of each record of a file.

    Raises:
      DamagedRecord: a record is truncated, or its checksum is wrong.
      OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        remaining_bytes = os.fstat(file.fileno()).st_size
        number = 0
        while remaining_bytes:
            header = file.read(_LENGTH.size + _CHECKSUM.size)
            length_bytes, checksum = header[: _LENGTH.size], header[_LENGTH.size :]
            if len(checksum) < _CHECKSUM.size:
                raise DamagedRecord(number, "the file ends within its length")
            if checksum != _checksum(length_bytes):
                raise DamagedRecord(number, "its length has a wrong checksum")
            (length,) = _LENGTH.unpack(length_bytes)
            remaining_bytes -= len(header) + length + _CHECKSUM.size
            if remaining_bytes < 0:
                raise DamagedRecord(number, f"the file ends {-remaining_bytes} bytes too early")
            content = file.read(length)
            if file.read(_CHECKSUM.size) != _checksum(content):
                raise DamagedRecord(number, "its content has a wrong checksum")
            yield content
            number += 1


def _checksum(data: bytes) -> bytes:
    # Mask the checksum as the format requires: a plain checksum would be weak for data that itself
    # contains checksums.
    crc: int = google_crc32c.value(data)
    return _CHECKSUM.pack((((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)
