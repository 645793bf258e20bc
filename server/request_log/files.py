"""Writes the TFRecord files of the request log, and begins a new file when one is full."""

import errno
import os
import time
from collections.abc import Callable, Collection
from io import FileIO
from itertools import count
from pathlib import Path

from tpuserve.saved_model import tfrecord

# The limits of a log file are those of a warm-up file, so that each log file can be used as a
# warm-up file.
MAX_RECORDS = 1000
MAX_BYTES = 64 << 20


class RecordFiles:
    """The open TFRecord files of the request log, one per model and path prefix. Not thread-safe.

    After a restart, the server never appends to the files that already exist.

    Args:
      clock: returns the time in seconds since 1970, which is a part of the files' names.
      max_bytes: the largest size of a file, in bytes. Only a file with a single record may be
        larger.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        max_records: int = MAX_RECORDS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._clock = clock
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._open: dict[tuple[str, str], _RecordFile] = {}

    def write(self, model: str, prefix: str, record: bytes) -> None:
        """Append a record to the open file of a model and a path prefix.

        If no file is open, or the record does not fit into the file, a new file is begun.

        Raises:
          OSError: the record cannot be written. A file that has records is then unchanged, and a
            file without records is removed.
        """
        key = model, prefix
        framed = tfrecord.frame_record(record)
        file = self._open.get(key)
        if file is not None and (
            file.records >= self._max_records or file.bytes + len(framed) > self._max_bytes
        ):
            self._open.pop(key).close()
            file = None
        if file is None:
            file = self._open[key] = _RecordFile(self._create(prefix))
        try:
            file.append(framed)
        except OSError:
            # Keep a file that has records, to append the next record to it. Remove an empty file,
            # because otherwise each failure would leave another empty file.
            if not file.records:
                self._open.pop(key).remove()
            raise

    def close_except(self, models_and_prefixes: Collection[tuple[str, str]]) -> None:
        """Close all open files except those of the given pairs (model, path prefix)."""
        for key in self._open.keys() - set(models_and_prefixes):
            self._open.pop(key).close()

    def close(self) -> None:
        """Close all files."""
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

    def append(self, framed: bytes) -> None:
        # Write each record with one unbuffered call, so that a crash damages at most one record.
        try:
            written = self._file.write(framed)
            if written != len(framed):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            self._file.truncate(self.bytes)
            self._file.seek(self.bytes)
            raise
        self.records += 1
        self.bytes += len(framed)

    def close(self) -> None:
        self._file.close()

    def remove(self) -> None:
        self._file.close()
        os.unlink(self._file.name)
