"""Downloads the files of a version, and compares their sizes and checksums with the listing."""

import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from server.storage.file_systems import translated_errors
from tpuserve.errors import Cancelled, Code, CodedError, Unavailable

_FINGERPRINT_DIGITS = 32


@dataclass(frozen=True)
class Checksum:
    """The checksum of a file's content, in the listing of the storage."""

    algorithm: str
    digest: str


@dataclass(frozen=True)
class RemoteFile:
    """A file of a model version in remote storage.

    Attributes:
      path: the path relative to the version's directory, such as "variables/variables.index".
      size: the size in bytes; None if the listing does not have it.
      identity: a text that changes with the content of the file, such as an ETag; empty if the
        listing does not have one.
      checksum: the checksum of the content; None if the listing does not have it.

    Raises:
      CodedError: the path points outside of the version's directory, is empty, or contains a null
        character.
    """

    path: str
    url: str
    size: int | None
    identity: str = ""
    checksum: Checksum | None = None

    def __post_init__(self) -> None:
        parts = PurePosixPath(self.path).parts
        if not parts or ".." in parts or self.path.startswith("/") or "\0" in self.path:
            raise CodedError(
                f"{self.url} has the path {self.path!r}, which leads out of the model. Remove the "
                f"file from the storage.",
                Code.PERMISSION_DENIED,
            )


@dataclass(frozen=True)
class RemoteVersion:
    """A version of a model in remote storage, with its files."""

    uri: str
    number: int
    files: tuple[RemoteFile, ...]

    @property
    def size(self) -> int:
        """The size of all files together, in bytes; a file of unknown size counts as 0 bytes."""
        return sum(file.size or 0 for file in self.files)

    @property
    def fingerprint(self) -> str:
        """A text that differs between versions with different URIs or contents."""
        contents = [
            (file.path, file.size, file.identity, file.checksum and file.checksum.digest)
            for file in self.files
        ]
        text = json.dumps([self.uri, self.number, contents])
        return hashlib.sha256(text.encode()).hexdigest()[:_FINGERPRINT_DIGITS]


_PARALLEL_FILES = 4
_PROGRESS_SECONDS = 10
# If fewer than _SLOW_BYTES bytes of a download arrive within _SLOW_SECONDS, the download fails. A
# slow download would occupy one of the few threads, which downloads of other models need.
_SLOW_SECONDS, _SLOW_BYTES = 300, 300_000
_CHUNK_BYTES = 1 << 20

logger = logging.getLogger(__name__)


class VersionDownload:
    """The download of one model version from remote storage.

    Args:
      is_cancelled: returns whether the download must stop; called whenever bytes arrive.
      max_bytes: the largest size of the version, in bytes; 0 for no limit. It is checked during
        the download, because some listings do not have the sizes of the files.
    """

    def __init__(
        self,
        file_system: Any,
        version: RemoteVersion,
        is_cancelled: Callable[[], bool],
        max_bytes: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_bytes = max_bytes
        self._file_system = file_system
        self._version = version
        self._is_cancelled = is_cancelled
        self._clock = clock
        self._received: dict[str, int] = {}
        self._lock = threading.Lock()
        self._start = self._last_progress = clock()
        # The beginning of the current interval, in seconds, and the number of bytes that had
        # arrived by then. In each interval, a minimum number of bytes must arrive.
        self._last_check, self._checked_bytes = self._start, 0

    def run(self, directory: Path) -> None:
        """Download all files of the version to a new directory, and sync them to disk.

        Raises:
          CodedError: the files have more than `max_bytes` bytes together.
          Unavailable: fewer than 300,000 bytes have arrived within five minutes.
        """
        files = self._version.files
        logger.info(
            "%s: downloading %d files, %s",
            self._version.uri,
            len(files),
            format_megabytes(self._version.size),
        )
        directory.mkdir(parents=True)
        with ThreadPoolExecutor(_PARALLEL_FILES, "download-file") as executor:
            for _ in executor.map(lambda file: self._download(file, directory / file.path), files):
                pass
        total = sum(self._received.values())
        seconds = self._clock() - self._start
        logger.info(
            "%s: downloaded %s in %.1f s, %s/s",
            self._version.uri,
            format_megabytes(total),
            seconds,
            format_megabytes(total / max(seconds, 1e-3)),
        )

    def _download(self, file: RemoteFile, target: Path) -> None:
        from fsspec.callbacks import Callback

        def note_progress(_: int | None, value: int, **others: Any) -> None:
            if self._is_cancelled():
                raise Cancelled(f"the download of {self._version.uri} was cancelled.")
            if file.size is not None and value > file.size:
                raise self._wrong_size(file, value)
            self._note_progress(file.path, value)

        note_progress(None, 0)
        with translated_errors(file.url):
            target.parent.mkdir(parents=True, exist_ok=True)
            self._file_system.get_file(
                file.url, str(target), callback=Callback(hooks={"progress": note_progress})
            )
            if file.size == 0:
                # Create the file, because some fsspec file systems do not create an empty file.
                target.touch()
            size = target.stat().st_size
        self._note_progress(file.path, size)
        if file.size is not None and size != file.size:
            raise self._wrong_size(file, size)
        self._check_and_sync(file, target)

    def _wrong_size(self, file: RemoteFile, size: int) -> CodedError:
        return CodedError(
            f"{file.url} has {file.size} bytes, and {size} bytes arrived: the connection was cut, "
            f"or the file changed. The server tries again.",
            Code.DATA_LOSS,
        )

    def _check_and_sync(self, file: RemoteFile, target: Path) -> None:
        with translated_errors(file.url), target.open("rb") as stream:
            if file.checksum is not None:
                digest = hashlib.new(file.checksum.algorithm, usedforsecurity=False)
                while chunk := stream.read(_CHUNK_BYTES):
                    digest.update(chunk)
                if digest.hexdigest() != file.checksum.digest:
                    raise CodedError(
                        f"{file.url} has the {file.checksum.algorithm} {file.checksum.digest} in "
                        f"the listing, and {digest.hexdigest()} arrived. Upload the file again if "
                        f"this goes on.",
                        Code.DATA_LOSS,
                    )
            os.fsync(stream.fileno())

    def _note_progress(self, path: str, received: int) -> None:
        with self._lock:
            self._received[path] = received
            total = sum(self._received.values())
            if self._max_bytes and total > self._max_bytes:
                raise CodedError(
                    f"{self._version.uri} has more bytes than --model_cache_max_bytes, which is "
                    f"{self._max_bytes}. Raise --model_cache_max_bytes.",
                    Code.RESOURCE_EXHAUSTED,
                )
            now = self._clock()
            self._check_rate(now, total)
            if now - self._last_progress < _PROGRESS_SECONDS:
                return
            self._last_progress = now
        logger.info(
            "%s: downloaded %s of %s, %s/s",
            self._version.uri,
            format_megabytes(total),
            format_megabytes(self._version.size),
            format_megabytes(total / (now - self._start)),
        )

    def _check_rate(self, now: float, total: int) -> None:
        if now - self._last_check < _SLOW_SECONDS:
            return
        if total - self._checked_bytes < _SLOW_BYTES:
            raise Unavailable(
                f"{self._version.uri} sent {total - self._checked_bytes} bytes in "
                f"{now - self._last_check:.0f} s. The server tries again; check the network and "
                f"the load of the storage."
            )
        self._last_check, self._checked_bytes = now, total


def format_megabytes(size: float) -> str:
    """Format a number of bytes in megabytes, such as "12.3 MB"."""
    return f"{size / 1e6:.1f} MB"
