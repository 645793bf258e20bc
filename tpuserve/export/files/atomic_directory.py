"""A version directory that is visible only once it is whole."""

import logging
import os
import posixpath
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import tensorflow as tf

from tpuserve.errors import ExportError, InvalidSetting, InvalidType
from tpuserve.export.files import versions
from tpuserve.saved_model import warm_up_file

logger = logging.getLogger(__name__)

_join = tf.io.gfile.join


class AtomicDirectory:
    """A place beside the final one, as a context manager.

    Leaving it in peace renames it, leaving it by an error removes it.

    A process that is killed leaves at most its temp-* directory, which no server takes for a
    version and no later export minds.

    Attributes:
      path: where to write; an empty directory at first.
      directory: the version directory, a child of the base named by a Unix time in seconds, or
        by the next number where an export has that name or a later one; known once it has its
        name.
    """

    def __init__(
        self,
        base_directory: str | os.PathLike[str],
        *,
        assets_extra: Mapping[str, str] | None = None,
        has_warm_up_file: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Writes nothing yet.

        Args:
          base_directory: where version directories live; created if missing.
          assets_extra: path below assets.extra/ → file to copy there.
          has_warm_up_file: whether a warm-up file will be written, and so cannot be brought.
          clock: gives the time in seconds that versions are named by.

        Raises:
          InvalidSetting: no base directory, a file of assets_extra that is not there, or a place
            for it that is outside of assets.extra/ or taken by the warm-up file.
          InvalidType: a path is none.
        """
        self._base = _base(base_directory)
        self._assets_extra = _files({} if assets_extra is None else assets_extra)
        if has_warm_up_file and warm_up_file.PATH.name in self._assets_extra:
            raise InvalidSetting(
                f"assets_extra brings {warm_up_file.PATH.name}, and warm_up writes it. Leave one "
                f"of them out."
            )
        self._clock = clock
        # Two exports at once must not write into one place.
        self.path = _join(self._base, f"temp-{uuid.uuid4().hex}")
        self.directory = ""

    def __enter__(self) -> "AtomicDirectory":
        with _writing(self._base):
            tf.io.gfile.makedirs(self.path)
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._copy_assets()
                with _writing(self._base):
                    self._publish()
        finally:
            if not self.directory and tf.io.gfile.exists(self.path):
                tf.io.gfile.rmtree(self.path)

    def _copy_assets(self) -> None:
        for relative_path, source in self._assets_extra.items():
            target = _join(self.path, warm_up_file.PATH.parent.as_posix(), relative_path)
            try:
                tf.io.gfile.makedirs(target.rpartition("/")[0])
                tf.io.gfile.copy(source, target)
            except tf.errors.OpError as error:
                raise ExportError(
                    f"cannot copy {source} of assets_extra to {target}: {error.message}. Look at "
                    f"the place that is named."
                ) from error

    def _publish(self) -> None:
        # Servers take the highest for the newest, also where the clock has been set back or an
        # older export has been removed since.
        known = versions.list_versions(self._base)
        version = max(int(self._clock()), int(known[-1]) + 1 if known else 0)
        while not self.directory:
            directory = _join(self._base, str(version))
            try:
                # Refuses a name that is taken, even by an empty directory. One that another
                # process publishes at this very moment is no longer empty, which the file
                # system refuses to replace.
                tf.io.gfile.rename(self.path, directory)
            except (tf.errors.AlreadyExistsError, tf.errors.FailedPreconditionError):
                if not tf.io.gfile.exists(directory):
                    raise
                version += 1
            else:
                self.directory = directory
        logger.info("exported %s", self.directory)


def _base(directory: Any) -> str:
    if not isinstance(directory, (str, bytes, os.PathLike)):
        raise InvalidType(f"export_dir_base is {directory!r}. Give a path.")
    if not os.fspath(directory):
        raise InvalidSetting("export_dir_base is missing. Give the model's base path.")
    return os.fsdecode(directory)


def _files(assets_extra: Any) -> dict[str, str]:
    """Path below assets.extra/, in its plainest form → file to copy there."""
    if not isinstance(assets_extra, Mapping):
        raise InvalidType(
            f"assets_extra is {assets_extra!r}. Give a dict of path below assets.extra/ → file."
        )
    found = {}
    for place, source in assets_extra.items():
        if not isinstance(place, str) or not isinstance(source, (str, bytes, os.PathLike)):
            raise InvalidType(f"assets_extra has {place!r}: {source!r}. Give paths.")
        source = os.fsdecode(source)
        if not tf.io.gfile.exists(source):
            raise InvalidSetting(
                f"assets_extra has {source!r}, and there is no such file. Name one that is."
            )
        if tf.io.gfile.isdir(source):
            raise InvalidSetting(f"assets_extra has {source!r}, a directory. Name its files.")
        plain = posixpath.normpath(place)
        if plain.split("/")[0] in ("", ".", "..") or place.endswith("/"):
            raise InvalidSetting(
                f"assets_extra has a place {place!r}, which is no file below assets.extra/ of the "
                f"export. Give a relative path, without '..'."
            )
        found[plain] = source
    return found


@contextmanager
def _writing(base: str) -> Iterator[None]:
    try:
        yield
    except (tf.errors.OpError, OSError) as error:
        reason = getattr(error, "message", None) or str(error)
        raise ExportError(
            f"{base} cannot be written: {reason}; make it a directory that this user can write."
        ) from error
