"""TFRecord files of the request log; when a file is full, a new file is begun."""

import errno
import os
import time
from collections.abc import Callable, Collection
from io import FileIO
from itertools import count
from pathlib import Path

from tpuserve.saved_model import tfrecord

# A log file has at most as many records and bytes as a warm-up file may have, so that each log file
# can serve as a warm-up file.
MAX_RECORDS = 1000
MAX_BYTES = 64 << 20


class RecordFiles:
    """The open record files, one per model and prefix. Not thread-safe.

    Every start of the server begins new files: an old file may end within a record, after a crash,
    or belong to another process.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        max_records: int = MAX_RECORDS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """Create an object with no open files.

        Args:
          clock: returns the time in seconds since 1970; file names contain the time.
          max_records: the number of records of a full file.
          max_bytes: the size of a full file, in bytes.
        """
        self._clock = clock
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._open: dict[tuple[str, str], _RecordFile] = {}

    def write(self, model: str, prefix: str, record: bytes) -> None:
        """Append a record to the model's file with the prefix.

        Raises:
          OSError: the record cannot be written; the file is then unchanged, and no empty file is
            left.
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
            # Keep a file with records for the next try, but remove an empty file: otherwise every
            # failed try would leave another empty file.
            if not file.records:
                self._open.pop(key).remove()
            raise

    def close_except(self, models_and_prefixes: Collection[tuple[str, str]]) -> None:
        """Close all files except the files of these models and prefixes."""
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

    def append(self, record: bytes) -> None:
        # Write each record with one unbuffered call, so that a crash truncates at most one record.
        framed = tfrecord.frame_record(record)
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
