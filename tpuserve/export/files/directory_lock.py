"""Makes the temporary directories of exports, and locks them so that abandoned ones are removed.

The lock is a file lock on the directory itself. The operating system releases it when the process
ends, even if the process is killed.
"""

import logging
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tensorflow as tf

from tpuserve.files.file_lock import lock_file

PREFIX = "temp-export-"
_NAME = re.compile(rf"{PREFIX}[0-9a-f]{{32}}")

logger = logging.getLogger(__name__)


@contextmanager
def temporary_directory(base: str) -> Iterator[str]:
    """Yield a new directory in `base`; at the end, remove it if it still has its name.

    Directories of exports that were killed are removed from `base` first, unless it is in a remote
    file system of TensorFlow, such as gs://bucket/models.
    """
    name = f"{PREFIX}{uuid.uuid4().hex}"
    path = tf.io.gfile.join(base, name)
    lock = None
    try:
        if "://" in base:
            tf.io.gfile.makedirs(path)
        else:
            tf.io.gfile.makedirs(base)
            lock = _create_locked(Path(base), name)
        yield path
    finally:
        if tf.io.gfile.exists(path):
            tf.io.gfile.rmtree(path)
        if lock is not None:
            os.close(lock)


def _create_locked(base: Path, name: str) -> int | None:
    """Create and lock a directory; return the descriptor of the lock, None without locks."""
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
