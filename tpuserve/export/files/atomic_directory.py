"""Writes a version directory that becomes visible only when it is complete."""

import logging
import os
import posixpath
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any

import tensorflow as tf

from tpuserve.errors import ExportError, InvalidSetting, InvalidType
from tpuserve.export.files import directory_lock, versions
from tpuserve.saved_model import warm_up_file

logger = logging.getLogger(__name__)

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
            temporary = directory_lock.temporary_directory(self._base)
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
