"""Reads and writes the records of TFRecord files.

Source: tensorflow/core/lib/io/record_writer.h. Each record is stored as its length (uint64), the
checksum of the length (uint32), the content, and the checksum of the content (uint32). All
integers are little-endian.
"""

import functools
import os
import struct
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import google_crc32c
import numpy as np

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
FRAME_BYTES = _LENGTH.size + 2 * _CHECKSUM.size
"""The size of a record in a file beyond that of its content."""


class DamagedRecord(Exception):
    """The error for a record of a TFRecord file that is truncated or has a wrong checksum."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"record {number}: {reason}")
        self.number = number
        self.reason = reason


def frame_record(content: bytes) -> bytes:
    """Return the bytes of a record in a TFRecord file: length and content with their checksums."""
    return b"".join((_frame_header(len(content)), content, _checksum(content)))


def frame_records(contents: Sequence[bytes]) -> bytes:
    """Return the bytes of several records in a TFRecord file.

    The result is that of `frame_record` for each record, but NumPy computes all checksums at once.
    """
    headers = map(_frame_header, map(len, contents))
    crcs = np.fromiter(map(google_crc32c.value, contents), np.uint64, len(contents))
    checksums = _mask(crcs).astype("<u4").view(f"V{_CHECKSUM.size}").tolist()
    return b"".join(chain.from_iterable(zip(headers, contents, checksums, strict=True)))


@functools.lru_cache(maxsize=1024)
def _frame_header(size: int) -> bytes:
    length = _LENGTH.pack(size)
    return length + _checksum(length)


def read_records(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Yield the content of each record of a TFRecord file."""
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
    return _CHECKSUM.pack(_mask(google_crc32c.value(data)))


def _mask(crc: Any) -> Any:
    """Convert a CRC32C checksum to the masked form in which TFRecord files store it."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
