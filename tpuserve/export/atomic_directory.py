"""Writes a version directory that becomes visible only when it is complete."""

import logging
import os
import posixpath
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import tensorflow as tf

from tpuserve.errors import ExportError, InvalidSetting, InvalidType
from tpuserve.export import versions
from tpuserve.files.file_lock import lock_file
from tpuserve.saved_model import warm_up_file

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


_join = tf.io.gfile.join


class AtomicDirectory:
    """A temporary directory that is renamed to a version directory when a with block succeeds.

    The block writes the files. If it raises, the directory is removed. A process that is killed
    leaves only its temp-* directory.

    Attributes:
      directory: The version directory, a child of the base directory.

    Args:
      has_warm_up_file: Whether the with block writes a warm-up file, so that `assets_extra`
        must not contain one.
    """

    def __init__(
        self,
        base_directory: str | os.PathLike[str],
        *,
        assets_extra: Mapping[str, str] | None = None,
        has_warm_up_file: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._base = _check_base(base_directory)
        self._assets_extra = _check_assets({} if assets_extra is None else assets_extra)
        if has_warm_up_file and warm_up_file.PATH.name in self._assets_extra:
            raise InvalidSetting(
                f"assets_extra has {warm_up_file.PATH.name}, and warm_up writes that file. Leave "
                f"one of them out."
            )
        self._clock = clock
        self.path = self.directory = ""
        self._exit_stack = ExitStack()

    def __enter__(self) -> "AtomicDirectory":
        with _writing(self._base):
            temporary = temporary_directory(self._base)
            self.path = self._exit_stack.enter_context(temporary)
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._exit_stack:
            if error is None:
                self._copy_assets()
                with _writing(self._base):
                    self._publish()
        if isinstance(error, tf.errors.OpError) and self.path in error.message:
            with _writing(self._base):
                raise error

    def _copy_assets(self) -> None:
        """Copy the files of `assets_extra` to assets.extra/ of the temporary directory."""
        for relative_path, source in self._assets_extra.items():
            target = _join(self.path, warm_up_file.PATH.parent.as_posix(), relative_path)
            try:
                tf.io.gfile.makedirs(target.rpartition("/")[0])
                tf.io.gfile.copy(source, target)
            except tf.errors.OpError as error:
                raise ExportError(
                    f"cannot copy {source} of assets_extra to {target}: {error.message}. Check "
                    f"both paths."
                ) from error

    def _publish(self) -> None:
        """Rename the temporary directory to a version number above all existing ones."""
        # Choose a number above all existing versions, even if the clock has been set back: servers
        # take the highest number as the newest version.
        existing = versions.list_versions(self._base)
        version = max(int(self._clock()), int(existing[-1]) + 1 if existing else 0)
        while not self.directory:
            directory = _join(self._base, str(version))
            try:
                # `rename` first checks that `directory` does not exist.
                tf.io.gfile.rename(self.path, directory)
            except (tf.errors.AlreadyExistsError, tf.errors.FailedPreconditionError):
                if not tf.io.gfile.exists(directory):
                    raise
                version += 1
            else:
                self.directory = directory
        logger.info("exported %s", self.directory)


def _check_base(directory: Any) -> str:
    if not isinstance(directory, (str, bytes, os.PathLike)):
        raise InvalidType(f"export_dir_base is {directory!r}. Give a path.")
    if not os.fspath(directory):
        raise InvalidSetting("export_dir_base is missing. Give the model's base path.")
    return os.fsdecode(directory)


def _check_assets(assets_extra: Any) -> dict[str, str]:
    if not isinstance(assets_extra, Mapping):
        raise InvalidType(
            f"assets_extra is {assets_extra!r}. Give a dict of path below assets.extra/ → file."
        )
    files = {}
    for target, source in assets_extra.items():
        if not isinstance(target, str) or not isinstance(source, (str, bytes, os.PathLike)):
            raise InvalidType(f"assets_extra has {target!r}: {source!r}. Give paths.")
        source = os.fsdecode(source)
        if not tf.io.gfile.exists(source):
            raise InvalidSetting(
                f"assets_extra has {source!r}, and there is no such file. Give an existing file."
            )
        if tf.io.gfile.isdir(source):
            raise InvalidSetting(f"assets_extra has {source!r}, a directory. Give its files.")
        normalized = posixpath.normpath(target)
        if normalized.split("/")[0] in ("", ".", "..") or target.endswith("/"):
            raise InvalidSetting(
                f"assets_extra has the target {target!r}, which is not a file below assets.extra/ "
                f"of the export. Give a relative path without '..'."
            )
        files[normalized] = source
    return files


@contextmanager
def _writing(base: str) -> Iterator[None]:
    """Convert errors of the file system inside a with block to ExportErrors that name `base`."""
    try:
        yield
    except (tf.errors.OpError, OSError) as error:
        reason = getattr(error, "message", None) or str(error)
        raise ExportError(
            f"{base} cannot be written: {reason}; make it a directory that this user can write."
        ) from error
