"""Keeps bytes in the files of a directory, for later runs."""

import contextlib
import hashlib
import os
import threading
import uuid
from pathlib import Path

ENVIRONMENT_NAME = "TPUSERVE_CACHE_DIR"
EXECUTABLES_VARIABLE = "TPUSERVE_XLA_CACHE_DIR"
"""The environment variable that names the directory of executables for training."""
OFF = "off"
"""The name that a user gives instead of a directory, so that no executables are cached."""


def find_cache_directory() -> Path:
    """Return the directory for all cached files of the current user.

    It is $TPUSERVE_CACHE_DIR if that is set, else a subdirectory of the platform's user cache
    directory, such as ~/.cache/tpuserve.
    """
    import platformdirs

    named = os.environ.get(ENVIRONMENT_NAME)
    return Path(named) if named else Path(platformdirs.user_cache_dir("tpuserve"))


def find_executables_directory(named: str) -> Path | None:
    """Return the directory in which executables that XLA has compiled are cached.

    Args:
      named: the directory that the user has set; "" for the default, the subdirectory "executables"
        of the cache directory; `OFF` to cache no executables.

    Returns:
      None to cache no executables.
    """
    if named == OFF:
        return None
    return Path(named) if named else find_cache_directory() / "executables"


_DIGEST_BYTES = 32


class DiskCache:
    """A directory with a file for each key, which several processes may use at once.

    Each file begins with a digest of its content, so that a damaged file is noticed.

    Args:
      suffix: the suffix of the names of the files, such as ".json".
      max_bytes: the largest total size of the files.
    """

    def __init__(self, directory: Path, suffix: str, max_bytes: int = 1 << 30) -> None:
        self.directory = directory
        self._suffix = suffix
        self._max_bytes = max_bytes
        self._lock = threading.Lock()

    def path(self, key: str) -> Path:
        """Return the path of the file of a key."""
        return self.directory / f"{key}{self._suffix}"

    def find(self, key: str) -> bytes | None:
        """Return the content that is stored under a key; None if there is none."""
        try:
            data = self.path(key).read_bytes()
        except OSError:
            return None
        digest, content = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        if hashlib.sha256(content).digest() != digest:
            raise ValueError("the file is damaged")
        return content

    def touch(self, key: str) -> None:
        """Mark the file of a key as used: if the cache is full, unused files are deleted first."""
        # Another process may delete the file.
        with contextlib.suppress(FileNotFoundError):
            os.utime(self.path(key))

    def store(self, key: str, content: bytes) -> None:
        """Store a content under a key, and delete the oldest files if the cache is full."""
        temporary = self.directory / f"{key}.{uuid.uuid4().hex}"
        with self._lock:
            try:
                self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                temporary.write_bytes(hashlib.sha256(content).digest() + content)
                temporary.replace(self.path(key))
            except OSError:
                with contextlib.suppress(OSError):
                    temporary.unlink(missing_ok=True)
                raise
            self._delete_oldest()

    def _delete_oldest(self) -> None:
        files = []
        for path in self.directory.glob(f"*{self._suffix}"):
            # Skip a file that another process has deleted after `glob` found it.
            with contextlib.suppress(FileNotFoundError):
                files.append((path, path.stat()))
        size = sum(status.st_size for _, status in files)
        for path, status in sorted(files, key=lambda pair: pair[1].st_mtime):
            if size <= self._max_bytes:
                return
            path.unlink(missing_ok=True)
            size -= status.st_size
