"""Writes the files of the request log, and begins a new file when one is full."""

import contextlib
import errno
import logging
import math
import os
import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from io import FileIO
from itertools import count
from pathlib import Path

from server.config.model_config import LOG_FORMATS, TFRECORD
from tpuserve.saved_model import tfrecord

# The limits of a log file are those of a warm-up file, so that each log file can be used as a
# warm-up file.
MAX_RECORDS = 1000
MAX_BYTES = 64 << 20
# The time, in seconds, after which a file that waits for its upload gets no more records.
_SPOOLED_SECONDS = 60
# A limit of a log's total size is shared by at least this number of files.
_MIN_FILES = 4

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FileSeries:
    """The files that have the records of one model's log, one file after the other.

    Attributes:
      prefix: the path with which the names of the files begin.
      format: "tfrecord" or "jsonl".
      writer: a text in the names of the files, by which processes with one prefix differ.
      max_total_bytes: the largest size of all files together, in bytes; 0 for no limit.
      is_spooled: whether another thread takes each file, and deletes it, once it is complete.
    """

    model: str
    prefix: str
    format: str = TFRECORD
    writer: str = str(os.getpid())
    max_total_bytes: int = 0
    is_spooled: bool = False


class RecordFiles:
    """The open files of the request log, one per series. Not thread-safe.

    After a restart, the server never appends to the files that already exist.

    Args:
      clock: returns the time in seconds since 1970, which is a part of the files' names.
      max_bytes: the largest size of a file, in bytes. Only a file with a single record may be
        larger.
      on_spooled: called with the path of each complete file of a series that is spooled.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        max_records: int = MAX_RECORDS,
        max_bytes: int = MAX_BYTES,
        on_spooled: Callable[[Path], None] = lambda path: None,
    ) -> None:
        self._clock = clock
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._on_spooled = on_spooled
        self._open: dict[FileSeries, _RecordFile] = {}
        # Use no number twice: the next file must not get the name of one that was uploaded.
        self._numbers = count()

    def write(self, series: FileSeries, record: bytes) -> None:
        """Append a record to the open file of a series.

        If no file is open, or the record does not fit into the file, a new file is begun. Before
        that, the oldest files are deleted if all would be larger than `max_total_bytes`.

        Args:
          record: a message, or complete lines of JSON, as the format of the series demands.

        Raises:
          OSError: the record cannot be written. A file that has records is then unchanged, and a
            file without records is removed.
        """
        framed = tfrecord.frame_record(record) if series.format == TFRECORD else record
        max_bytes = self._max_bytes
        if series.max_total_bytes:
            max_bytes = min(max_bytes, series.max_total_bytes // _MIN_FILES)
        file = self._open.get(series)
        if file is not None and (
            file.records >= self._max_records
            or file.bytes + len(framed) > max_bytes
            or file.is_deleted()
        ):
            self._close(series)
            file = None
        if file is None:
            file = self._open[series] = self._begin(series, max(max_bytes, len(framed)))
        try:
            file.append(framed)
        except OSError:
            # Keep a file that has records, to append the next record to it. Remove an empty file,
            # because otherwise each failure would leave another empty file.
            if not file.records:
                self._open.pop(series).remove()
            raise

    def close_old(self) -> float | None:
        """Close the files that wait for their upload and are old enough.

        Returns:
          The seconds until this function must be called again; None if nothing waits.
        """
        now = self._clock()
        for series in [series for series, file in self._open.items() if file.close_at <= now]:
            self._close(series)
        first = min((file.close_at for file in self._open.values()), default=math.inf)
        return None if first == math.inf else first - now

    def close_except(self, kept: Collection[FileSeries]) -> None:
        """Close all open files except those of the given series."""
        for series in self._open.keys() - set(kept):
            self._close(series)

    def close(self) -> None:
        """Close all files."""
        self.close_except(())

    def _close(self, series: FileSeries) -> None:
        file = self._open.pop(series)
        file.close()
        if series.is_spooled:
            self._on_spooled(file.path)

    def _begin(self, series: FileSeries, size: int) -> "_RecordFile":
        Path(series.prefix).parent.mkdir(parents=True, exist_ok=True)
        if series.max_total_bytes:
            _make_room(series, size)
        now = self._clock()
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
        for number in self._numbers:
            path = f"{series.prefix}-{stamp}-{series.writer}-{number}.{series.format}"
            with contextlib.suppress(FileExistsError):
                close_at = now + _SPOOLED_SECONDS if series.is_spooled else math.inf
                return _RecordFile(FileIO(path, "x"), close_at)
        raise AssertionError("counting has ended")


def _make_room(series: FileSeries, size: int) -> None:
    """Delete the oldest files of a series, so that a new one has room for `size` bytes."""
    prefix = Path(series.prefix)
    suffixes = "|".join(LOG_FORMATS)
    names = re.compile(rf"{re.escape(prefix.name)}-\d{{8}}-\d{{6}}-\w+-\d+\.({suffixes})")
    files = []
    for path in prefix.parent.iterdir():
        if names.fullmatch(path.name):
            # Skip a file that was uploaded, or that another process has deleted.
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                files.append((status.st_mtime_ns, status.st_size, path))
    excess = sum(file[1] for file in files) + size - series.max_total_bytes
    if series.is_spooled and files and excess > 0:
        raise OSError(
            errno.EDQUOT,
            f"{len(files)} files wait for their upload, and max_total_bytes is "
            f"{series.max_total_bytes}",
        )
    for _, file_bytes, path in sorted(files):
        if excess <= 0:
            break
        path.unlink(missing_ok=True)
        excess -= file_bytes
        logger.info(
            "request log of %s: deleted %s, since max_total_bytes is %d",
            series.model,
            path,
            series.max_total_bytes,
        )


class _RecordFile:
    def __init__(self, file: FileIO, close_at: float) -> None:
        self._file = file
        self.close_at = close_at
        self.records = 0
        self.bytes = 0

    @property
    def path(self) -> Path:
        return Path(os.fsdecode(self._file.name))

    def is_deleted(self) -> bool:
        return not os.fstat(self._file.fileno()).st_nlink

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
