"""The cache directory of downloaded model versions, which several servers may share."""

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
from tpuserve.errors import Cancelled, Code, CodedError, Unavailable

# The name of the lock file of the whole cache, and of the lock file in each entry.
_LOCK_FILE = "lock"
_PARTIAL_SUFFIX = ".partial"
_WAIT_SECONDS = 0.2

logger = logging.getLogger(__name__)


@dataclass
class Lease:
    """Keeps the files of a downloaded version in the cache until `close` is called."""

    _entry: Path
    _descriptor: int

    def close(self) -> None:
        """Allow the cache to remove the files of the version. Must be called exactly once."""
        # Record the time of the last use, because the least recently used entries are removed
        # first.
        os.utime(self._descriptor)
        os.close(self._descriptor)


class ModelCache:
    """A cache directory with an entry for each downloaded model version.

    An entry is a directory that holds the version's directory and a lock file.

    Args:
      max_bytes: the largest size of all entries together, in bytes; 0 for no limit.
    """

    def __init__(self, root: Path, max_bytes: int) -> None:
        self._root = root
        self._max_bytes = max_bytes

    @property
    def max_bytes(self) -> int:
        """The largest size of all entries together, in bytes; 0 for no limit."""
        return self._max_bytes

    def check_writable(self) -> None:
        """Raise Unavailable if this process may not write to the cache."""
        with self._hold_lock():
            pass

    def directory_of(self, fingerprint: str, number: int) -> Path:
        """Return the directory of a version in the cache, which need not exist yet."""
        return self._root / fingerprint / str(number)

    def acquire(
        self,
        directory: Path,
        size: int,
        download: Callable[[Path], None],
        is_cancelled: Callable[[], bool],
    ) -> Lease:
        """Return a lease on a version, after downloading it if the cache does not have it.

        If another thread or process is already downloading the version, the method waits for this
        download.

        Raises:
          CodedError: the version does not fit, even if all unused entries were removed.
        """
        entry = directory.parent
        partial = _partial_path(entry)
        while True:
            if is_cancelled():
                raise Cancelled(f"the download of {directory} was cancelled.")
            with self._hold_lock():
                descriptor = _try_lock(entry, fcntl.LOCK_SH)
                if descriptor is not None:
                    os.utime(descriptor)
                    return Lease(entry, descriptor)
                partial.mkdir(exist_ok=True)
                (partial / _LOCK_FILE).touch()
                descriptor = _try_lock(partial, fcntl.LOCK_EX)
                if descriptor is not None:
                    try:
                        self._begin(entry, directory.name, size)
                    except BaseException:
                        self._discard(partial, descriptor)
                        raise
                    break
            time.sleep(_WAIT_SECONDS)
        try:
            download(partial / directory.name)
            _write_size(partial, _size_of(partial / directory.name))
            with self._hold_lock():
                os.rename(partial, entry)
                # Changing the exclusive lock to a shared lock can release the lock for a moment.
                fcntl.flock(descriptor, fcntl.LOCK_SH)
        except BaseException:
            with self._hold_lock():
                self._discard(partial, descriptor)
            raise
        return Lease(entry, descriptor)

    def _begin(self, entry: Path, name: str, size: int) -> None:
        # Remove what a killed server can have left: the files of an earlier download, and an entry
        # without its lock file, which would be in the way of the new entry.
        partial = _partial_path(entry)
        shutil.rmtree(partial / name, ignore_errors=True)
        if not (entry / _LOCK_FILE).exists():
            shutil.rmtree(entry, ignore_errors=True)
        _write_size(partial, size)
        self._make_room(partial, size)

    def _discard(self, partial: Path, descriptor: int) -> None:
        _remove(partial)
        os.close(descriptor)

    def _make_room(self, partial: Path, size: int) -> None:
        """Remove the least recently used entries until the new version fits into the cache."""
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
            _remove(entry)
            os.close(descriptor)
            total -= freed
            logger.info("removed %s from the model cache: %s", entry, format_megabytes(freed))
        if total > self._max_bytes:
            raise CodedError(
                f"a version of {size} bytes does not fit into the model cache {self._root}: "
                f"--model_cache_max_bytes is {self._max_bytes}, and {total - size} bytes are in "
                f"use. Raise --model_cache_max_bytes; it must hold the old and the new version of "
                f"a model at the same time.",
                Code.RESOURCE_EXHAUSTED,
            )

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        """Hold the lock of the whole cache while a `with` body runs."""
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._root / _LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise Unavailable(
                f"the model cache {self._root} cannot be written: {error.strerror}. Set "
                f"--model_cache_dir to a directory that the server may write to."
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _partial_path(entry: Path) -> Path:
    """Return the temporary name of an entry, under which its files may be incomplete."""
    return entry.with_name(entry.name + _PARTIAL_SUFFIX)


def _remove(entry: Path) -> None:
    if not entry.name.endswith(_PARTIAL_SUFFIX):
        entry = entry.rename(_partial_path(entry))
    for path in entry.glob("*"):
        # This removes the version's directory, and not the lock file.
        shutil.rmtree(path, ignore_errors=True)
    shutil.rmtree(entry, ignore_errors=True)


def _try_lock(entry: Path, mode: int) -> int | None:
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
