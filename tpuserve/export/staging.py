"""A version directory that is visible only once it is whole."""

import logging
import time
import uuid
from collections.abc import Callable, Mapping
from types import TracebackType

import tensorflow as tf

from tpuserve.errors import InvalidSetting

logger = logging.getLogger(__name__)

_join = tf.io.gfile.join


class Staging:
    """A place beside the final one, as a context manager.

    Leaving it in peace renames it, leaving it by an error removes it.

    A process that is killed leaves at most its temp-* directory, which no server takes for a
    version and no later export minds.

    Attributes:
      path: where to write; an empty directory at first.
      directory: the version directory, a child of the base named by a Unix time in seconds;
        known once it has its name.
    """

    def __init__(
        self,
        base_directory: str,
        *,
        assets_extra: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Writes nothing yet.

        Args:
          base_directory: where version directories live; created if missing.
          assets_extra: path below assets.extra/ → file to copy there.
          clock: gives the time in seconds that versions are named by.

        Raises:
          InvalidSetting: a file of assets_extra is not there.
        """
        for source in (assets_extra or {}).values():
            if not tf.io.gfile.exists(source):
                raise InvalidSetting(
                    f"assets_extra has {source!r}, and there is no such file. Name one that is."
                )
        self._base = base_directory
        self._assets_extra = dict(assets_extra or {})
        self._clock = clock
        # Two exports at once must not write into one place.
        self.path = _join(base_directory, f"temp-{uuid.uuid4().hex}")
        self.directory = ""

    def __enter__(self) -> "Staging":
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
                self._publish()
        finally:
            if not self.directory and tf.io.gfile.exists(self.path):
                tf.io.gfile.rmtree(self.path)

    def _copy_assets(self) -> None:
        for relative_path, source in self._assets_extra.items():
            target = _join(self.path, "assets.extra", relative_path)
            tf.io.gfile.makedirs(target.rpartition("/")[0])
            tf.io.gfile.copy(source, target)

    def _publish(self) -> None:
        version = int(self._clock())
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
