"""Locks temporary directories, so that a later export can tell which of them are abandoned.

The directory itself is locked. The system releases the lock when the process ends, however it ends.
"""

import logging
import os
import re
import shutil
import uuid
from pathlib import Path

from tpuserve.files.file_lock import lock_file

PREFIX = "temp-export-"
_NAME = re.compile(rf"{PREFIX}[0-9a-f]{{32}}")

logger = logging.getLogger(__name__)


def new_name() -> str:
    """Return a unique name for a temporary directory, because several exports may run at once."""
    return f"{PREFIX}{uuid.uuid4().hex}"


def create_locked(base: Path, name: str) -> int | None:
    """Create a temporary directory and lock it; remove abandoned ones beside it.

    Args:
      base: an existing directory.
      name: a name of `new_name`.

    Returns:
      The file descriptor to close when the directory is complete or removed; None if the file
      system has no locks. Without locks, no abandoned directory is removed.
    """
    # Hold the lock of the base directory, so that no other export finds the new directory before
    # it is locked.
    base_lock = _lock(base, wait=True)
    try:
        if base_lock is not None:
            _remove_abandoned(base)
        (base / name).mkdir()
        return _lock(base / name)
    finally:
        if base_lock is not None:
            os.close(base_lock)


def _remove_abandoned(base: Path) -> None:
    """Remove the temporary directories whose process has ended."""
    for path in base.iterdir():
        if not _NAME.fullmatch(path.name) or path.is_symlink():
            continue
        lock = _lock(path)
        if lock is None:
            continue
        try:
            shutil.rmtree(path, ignore_errors=True)
            logger.info("removed %s, which an export that was killed has left", path)
        finally:
            os.close(lock)


def _lock(path: Path, *, wait: bool = False) -> int | None:
    """Lock a directory; None if another process holds the lock, or the file system has no locks.

    Args:
      path: the directory.
      wait: whether to wait for the process that holds the lock.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        if lock_file(descriptor, wait=wait):
            return descriptor
    except BlockingIOError:
        pass
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
