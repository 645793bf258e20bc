"""Stores compiled XLA executables on disk, so that a restarted process need not compile again."""

import functools
import hashlib
import logging
import os
import pickle
import stat
from pathlib import Path
from typing import Any

from tpuserve.files.disk_cache import DiskCache

# The version of the file format, which is part of each key. Increase it when the content of the
# files changes, so that older files are not found.
_FORMAT = "1"
_SUFFIX = ".executable"
# The largest total size of the files in a cache directory, in bytes. Clients choose the shapes for
# which executables are compiled, so a limit is necessary.
_MAX_BYTES = 1 << 30

logger = logging.getLogger(__name__)


class ExecutableCache:
    """A cache directory with one file for each compiled XLA executable.

    Several processes may use the directory at once.
    """

    def __init__(self, directory: Path | None) -> None:
        self._files: DiskCache | None = None
        self._can_write = False
        if directory is None:
            return
        problem = _prepare_directory(directory)
        if problem:
            logger.warning("executables are not read from %s: %s", directory, problem)
            return
        self._files = DiskCache(directory, _SUFFIX, _MAX_BYTES)
        self._can_write = os.access(directory, os.W_OK)
        if not self._can_write:
            logger.warning("executables are not saved: %s cannot be written", directory)

    def make_key(self, device: Any, *content: str) -> str:
        """Return the key of an executable in the cache.

        The key is a hash of the program, the versions of jax, the settings of XLA, and the
        properties of the device and the processor.
        """
        parts = [_FORMAT, _describe_machine(device), *content]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def find(self, key: str, *devices: Any) -> Any:
        """Load the executable with a key from the cache.

        Returns:
          A jax.stages.Compiled; None if there is no file with this key. If the file is damaged, or
          cannot be loaded for these devices, log a warning and return None.
        """
        if self._files is None:
            return None
        from jax.experimental import serialize_executable

        try:
            content = self._files.find(key)
            if content is None:
                return None
            serialized, in_tree, out_tree = pickle.loads(content)
            compiled = serialize_executable.deserialize_and_load(
                serialized,
                in_tree,
                out_tree,
                backend=devices[0].client,
                execution_devices=devices,
            )
        except Exception as error:
            # Catch exceptions of any type: jax and its runtime have no common class of errors for a
            # file that they cannot load.
            logger.warning("%s is compiled again: %s", self._files.path(key), error)
            return None
        if self._can_write:
            self._files.touch(key)
        return compiled

    def store(self, key: str, compiled: Any) -> None:
        """Write an executable to the cache.

        If the file cannot be written, log a warning, and write no more executables in this process.
        """
        if self._files is None or not self._can_write:
            return
        from jax.experimental import serialize_executable

        try:
            content = pickle.dumps(serialize_executable.serialize(compiled))
        except (ValueError, NotImplementedError) as error:
            logger.info("an executable is not saved: %s", error)
            return
        try:
            self._files.store(key, content)
        except OSError as error:
            self._can_write = False
            logger.warning(
                "executables are no longer saved in %s: %s", self._files.directory, error
            )


def _prepare_directory(directory: Path) -> str:
    """Create a cache directory if it is missing; return why it cannot be used, or ""."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.stat()
    except OSError as error:
        return error.strerror or str(error)
    if status.st_uid not in (os.geteuid(), 0):
        return "another user owns it"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "other users can write to it"
    return ""


@functools.cache
def _describe_machine(device: Any) -> str:
    """Return a text that describes the environment for which an executable is compiled."""
    import jax
    import jaxlib

    client = device.client
    return repr(
        (
            jax.__version__,
            jaxlib.__version__,
            client.platform,
            client.platform_version,
            device.device_kind,
            device.id,
            os.environ.get("XLA_FLAGS", ""),
            _read_processor_features() if client.platform == "cpu" else "",
        )
    )


def _read_processor_features() -> str:
    """Return the lines of /proc/cpuinfo that list the instruction sets of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "Features"))}))
