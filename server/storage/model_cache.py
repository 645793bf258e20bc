"""The cache directory of downloaded versions, which several servers may share."""

import fcntl
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from server.storage.download import format_megabytes
from tpuserve.errors import Cancelled, ModelCacheFull, StorageUnavailable

# The file in an entry. It holds the entry's size in bytes, its modification time is that of the
# last use, and the processes that use the entry hold a lock on it.
_LOCK_FILE = "lock"
_PARTIAL_SUFFIX = ".partial"
_WAIT_SECONDS = 0.2

logger = logging.getLogger(__name__)


@dataclass
class Lease:
    """Keeps the files of a version in the cache until `close` is called."""

    _entry: Path
    _descriptor: int

    def close(self) -> None:
        """Allow the cache to remove the files. Call this method once."""
        # The time of the last use is only used to choose what to remove.
        os.utime(self._descriptor)
        os.close(self._descriptor)


class ModelCache:
    """A directory with an entry for each downloaded version.

    An entry is a directory with the version's directory and a lock file. A version is downloaded
    to an entry with another name, which is renamed once it is complete. All changes of the
    directory itself happen under one lock, so that servers can share it.
    """

    def __init__(self, root: Path, max_bytes: int) -> None:
        """Create a cache; its directory is created with the first download.

        Args:
          root: the directory.
          max_bytes: the largest size of all entries, in bytes; 0 for no limit.
        """
        self._root = root
        self._max_bytes = max_bytes

    @property
    def max_bytes(self) -> int:
        """The largest size of all entries, in bytes; 0 for no limit."""
        return self._max_bytes

    def directory_of(self, fingerprint: str, number: int) -> Path:
        """Return the directory of a version, which need not exist.

        Args:
          fingerprint: identifies the version and its contents.
          number: the version number.
        """
        return self._root / fingerprint / str(number)

    def acquire(
        self,
        directory: Path,
        size: int,
        download: Callable[[Path], None],
        is_cancelled: Callable[[], bool],
    ) -> Lease:
        """Return a lease on a version; download the version first if the cache lacks it.

        If another process downloads the version already, the method waits for that download.

        Args:
          directory: the version's directory, from `directory_of`.
          size: the size of the version in bytes.
          download: writes the version to a directory, which it creates.
          is_cancelled: returns whether to stop waiting.

        Raises:
          Cancelled: `is_cancelled` returned True.
          ModelCacheFull: the version is larger than the space that can be freed.
          TpuserveError: the download failed; its files are removed.
        """
        entry = directory.parent
        partial = entry.with_name(entry.name + _PARTIAL_SUFFIX)
        while True:
            if is_cancelled():
                raise Cancelled(f"the download of {directory} was cancelled.")
            with self._locked():
                descriptor = _try_lock(entry, fcntl.LOCK_SH)
                if descriptor is not None:
                    os.utime(descriptor)
                    return Lease(entry, descriptor)
                partial.mkdir(exist_ok=True)
                (partial / _LOCK_FILE).touch()
                descriptor = _try_lock(partial, fcntl.LOCK_EX)
                if descriptor is not None:
                    try:
                        self._begin(partial, directory.name, size)
                    except BaseException:
                        self._discard(partial, descriptor)
                        raise
                    break
            time.sleep(_WAIT_SECONDS)
        try:
            download(partial / directory.name)
            _write_size(partial, _size_of(partial / directory.name))
            with self._locked():
                os.rename(partial, entry)
                # No other process can take the lock between these two calls, because it needs the
                # lock of the whole cache for that.
                fcntl.flock(descriptor, fcntl.LOCK_SH)
        except BaseException:
            with self._locked():
                self._discard(partial, descriptor)
            raise
        return Lease(entry, descriptor)

    def _begin(self, partial: Path, name: str, size: int) -> None:
        # A server that was killed may have left files.
        shutil.rmtree(partial / name, ignore_errors=True)
        _write_size(partial, size)
        self._make_room(partial, size)

    def _discard(self, partial: Path, descriptor: int) -> None:
        shutil.rmtree(partial, ignore_errors=True)
        os.close(descriptor)

    def _make_room(self, partial: Path, size: int) -> None:
        """Remove the least recently used entries until a version of a size fits."""
        if not self._max_bytes:
            return
        others = [
            path
            for path in self._root.iterdir()
            if path != partial and (path / _LOCK_FILE).is_file()
        ]
        total = size + sum(map(_read_size, others))
        for entry in sorted(others, key=lambda path: (path / _LOCK_FILE).stat().st_mtime_ns):
            if total <= self._max_bytes:
                return
            descriptor = _try_lock(entry, fcntl.LOCK_EX)
            if descriptor is None:
                continue
            freed = _read_size(entry)
            shutil.rmtree(entry, ignore_errors=True)
            os.close(descriptor)
            total -= freed
            logger.info("removed %s from the model cache: %s", entry, format_megabytes(freed))
        if total > self._max_bytes:
            raise ModelCacheFull(
                f"a version of {size} bytes does not fit into the model cache {self._root}: "
                f"--model_cache_max_bytes is {self._max_bytes}, and {total - size} bytes are in "
                f"use. Raise --model_cache_max_bytes; it must hold the old and the new version of "
                f"a model at the same time."
            )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock on the whole cache."""
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._root / _LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StorageUnavailable(
                f"the model cache {self._root} cannot be written: {error.strerror}. Set "
                f"--model_cache_dir to a directory that the server may write to."
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _try_lock(entry: Path, mode: int) -> int | None:
    """Lock an entry without waiting.

    Returns:
      The descriptor that holds the lock; None if the entry does not exist or is locked.
    """
    try:
        descriptor = os.open(entry / _LOCK_FILE, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _write_size(entry: Path, size: int) -> None:
    (entry / _LOCK_FILE).write_text(str(size), encoding="ascii")


def _read_size(entry: Path) -> int:
    text = (entry / _LOCK_FILE).read_text(encoding="ascii")
    return int(text) if text.isdecimal() else 0


def _size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
