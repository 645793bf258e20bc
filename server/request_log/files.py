"""Files of records that grow, and are followed by others when they are full.

Source of the framing: tensorflow/core/lib/io/record_writer.h.
"""

import os
import struct
import time
from collections.abc import Callable, Collection
from io import FileIO
from itertools import count
from pathlib import Path

import google_crc32c

# What a warm-up file may hold, so that each file is one.
MAX_RECORDS = 1000
MAX_BYTES = 64 << 20

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")


class RecordFiles:
    """One open file a model and prefix; not for several threads at once.

    A file is new whenever the server starts: it appends to none that another process, or a
    crash, may have left within a record.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        max_records: int = MAX_RECORDS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """Takes what is full, and a clock of seconds since 1970 to name files by."""
        self._clock = clock
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._open: dict[tuple[str, str], _RecordFile] = {}

    def write(self, model: str, prefix: str, record: bytes) -> None:
        """Appends a record to the model's file with the prefix.

        Raises:
          OSError: it cannot be written; the file then is as it was before.
        """
        key = model, prefix
        file = self._open.get(key)
        if file is not None and (
            file.records >= self._max_records or file.bytes >= self._max_bytes
        ):
            self._open.pop(key).close()
            file = None
        if file is None:
            file = self._open[key] = _RecordFile(self._create(prefix))
        try:
            file.append(record)
        except OSError:
            self._open.pop(key).close()
            raise

    def keep(self, wanted: Collection[tuple[str, str]]) -> None:
        """Closes all files but those of these models and prefixes."""
        for key in self._open.keys() - set(wanted):
            self._open.pop(key).close()

    def close(self) -> None:
        """Closes all files."""
        while self._open:
            self._open.popitem()[1].close()

    def _create(self, prefix: str) -> FileIO:
        Path(prefix).parent.mkdir(parents=True, exist_ok=True)
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(self._clock()))
        for number in count():
            try:
                return FileIO(f"{prefix}-{stamp}-{os.getpid()}-{number}.tfrecord", "x")
            except FileExistsError:
                continue
        raise AssertionError("counting has ended")


class _RecordFile:
    def __init__(self, file: FileIO) -> None:
        self._file = file
        self.records = 0
        self.bytes = 0

    def append(self, record: bytes) -> None:
        # In one write, without a buffer: a crash cuts one record at most.
        framed = frame(record)
        try:
            written = self._file.write(framed)
            if written != len(framed):
                raise OSError("the disk is full")
        except OSError:
            self._file.truncate(self.bytes)
            raise
        self.records += 1
        self.bytes += len(framed)

    def close(self) -> None:
        self._file.close()


def frame(record: bytes) -> bytes:
    """A record as it stands in a file: length and content, each with its checksum."""
    length = _LENGTH.pack(len(record))
    return b"".join((length, _checksum(length), record, _checksum(record)))


def _checksum(data: bytes) -> bytes:
    # Masked, because a checksum of data that holds checksums is a weak one.
    crc: int = google_crc32c.value(data)
    return _CHECKSUM.pack((((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)
