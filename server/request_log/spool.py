"""Keeps the files of request logs in a local directory until they are uploaded."""

import contextlib
import os
import re
import shutil
import threading
import uuid
from pathlib import Path
from urllib.parse import quote, unquote

from tpuserve.files.file_lock import lock_file

_NAMES = re.compile("spool-[0-9a-f]{12}")
_EMPTY = "%"


class Spool:
    """The files of this process that wait for their upload. Thread-safe.

    Each process has a directory of its own, which it locks. After its end, another process takes
    the files. The path of a file names its model and its destination:
    DIRECTORY/spool-ID/MODEL/s3:/%/BUCKET/NAME.

    Args:
      directory: the directory in which the processes have theirs.

    Attributes:
      writer: a text that no other process has.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.writer = uuid.uuid4().hex[:12]
        self._own = directory / f"spool-{self.writer}"
        self._descriptor: int | None = None
        self._lock = threading.Lock()

    def open(self) -> None:
        """Create the directory of this process, and lock it.

        Raises:
          OSError: the directory cannot be created.
        """
        with self._lock:
            if self._descriptor is not None:
                return
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Another process takes a directory that is not locked, so lock it under another name.
            unlocked = self._own.with_name(f".{self._own.name}")
            unlocked.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(unlocked, os.O_RDONLY)
            lock_file(descriptor)
            unlocked.rename(self._own)
            self._descriptor = descriptor

    def prefix(self, model: str, url_prefix: str) -> str:
        """Return the path with which the names of the files for a destination begin."""
        return str(self._own.joinpath(*map(_encode, (model, *url_prefix.split("/")))))

    def destination(self, path: Path) -> tuple[str, str]:
        """Return the model and the URL of a file."""
        model, *parts = map(_decode, path.relative_to(self._own).parts)
        return model, "/".join(parts)

    def take_left_files(self) -> list[Path]:
        """Take the files of processes that have ended, and return their new paths."""
        taken: list[Path] = []
        for directory in sorted(self.directory.iterdir()):
            if directory == self._own or not _NAMES.fullmatch(directory.name):
                continue
            # A process that runs holds the lock, or has just taken the files.
            with contextlib.suppress(OSError):
                descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    if lock_file(descriptor):
                        self._take(directory, taken)
                finally:
                    os.close(descriptor)
        return taken

    def close(self) -> None:
        """Unlock the directory of this process, and delete it unless it has files."""
        with self._lock:
            if self._descriptor is None:
                return
            if not any(path.is_file() for path in self._own.rglob("*")):
                shutil.rmtree(self._own, ignore_errors=True)
            os.close(self._descriptor)
            self._descriptor = None

    def _take(self, directory: Path, taken: list[Path]) -> None:
        for path in sorted(filter(Path.is_file, directory.rglob("*"))):
            target = self._own / path.relative_to(directory)
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            taken.append(path.rename(target))
        shutil.rmtree(directory)


def _encode(part: str) -> str:
    return quote(part, safe=":") or _EMPTY


def _decode(part: str) -> str:
    return "" if part == _EMPTY else unquote(part)
