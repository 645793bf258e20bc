"""Defines a file that only grows, so that a later process can continue it."""

import os
from collections.abc import Iterable
from pathlib import Path


class AppendFile:
    """A file to which bytes are appended. The bytes that `sync` has written never change.

    Args:
      size: the number of bytes to keep; 0 to create the file.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self._file = open(path, "rb+" if size else "wb")  # noqa: SIM115
        self._file.truncate(size)
        self._file.seek(size)

    def append(self, parts: Iterable[bytes]) -> None:
        """Append the bytes of all parts, in their order. They may stay in memory until `sync`."""
        self._file.writelines(parts)

    def sync(self) -> Path:
        """Write all appended bytes to the disk, and return the path of the file."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self.path

    def close(self) -> None:
        """Write the bytes that are still in memory, and close the file."""
        self._file.close()
