"""Locks the temporary directories of exports, so that a later export can remove abandoned ones.

The lock is a file lock on the directory itself. The operating system releases it when the process
ends, even if the process is killed. A temporary directory without a lock is therefore abandoned.
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
    """Return a name for a temporary directory that no other export uses."""
    return f"{PREFIX}{uuid.uuid4().hex}"


def create_locked(base: Path, name: str) -> int | None:
    """Create a temporary directory and lock it; remove abandoned temporary directories in `base`.

    Args:
      base: an existing directory, in which the temporary directory is created.
      name: a name from `new_name`.

    Returns:
      The file descriptor that holds the lock. Close it when the directory is complete or removed.
      None if the file system has no locks; then no abandoned directory is removed either.
    """
    # Lock the base directory until the new directory is locked. Otherwise another export could find
    # the new directory without a lock, and remove it as abandoned.
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
    """Remove the temporary directories in `base` whose process has ended without removing them."""
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
    """Lock a directory for this process.

    Args:
      path: the directory.
      wait: whether to wait if another process holds the lock.

    Returns:
      The file descriptor that holds the lock; None if another process holds it, or if the file
      system has no locks.
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
