"""Stores compiled XLA executables on disk, so that a restarted process need not compile again."""

import contextlib
import functools
import hashlib
import logging
import os
import pickle
import stat
import threading
import uuid
from pathlib import Path
from typing import Any

# The version of the file format, which is part of each key. Increase it when the content of the
# files changes, so that older files are not found.
_FORMAT = "1"
_SUFFIX = ".executable"
_DIGEST_BYTES = 32
# The largest total size of the files in a cache directory, in bytes. Clients choose the shapes for
# which executables are compiled, so a limit is necessary.
_MAX_BYTES = 1 << 30

logger = logging.getLogger(__name__)


class ExecutableCache:
    """A cache directory with one file for each compiled XLA executable.

    Several processes may use the directory at once. A directory to which other users can write is
    not used: a file from another user could run any code in the process that loads it.
    """

    def __init__(self, directory: Path | None) -> None:
        """Open a cache, and create its directory if necessary.

        If the directory cannot be used, log a warning and cache nothing.

        Args:
          directory: the directory; None for a cache that stores nothing.
        """
        self._directory = directory
        self._can_write = False
        self._lock = threading.Lock()
        if directory is None:
            return
        problem = _prepare_directory(directory)
        if problem:
            logger.warning("executables are not read from %s: %s", directory, problem)
            self._directory = None
            return
        self._can_write = os.access(directory, os.W_OK)
        if not self._can_write:
            logger.warning("executables are not saved: %s cannot be written", directory)

    def make_key(self, device: Any, *content: str) -> str:
        """Return the key of an executable in the cache.

        The key is a hash of the program, the versions of jax, the settings of XLA, and the
        properties of the device and the processor.

        Args:
          device: the jax device that runs the executable.
          *content: texts that together identify the program.
        """
        parts = [_FORMAT, _describe_machine(device), *content]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def find(self, key: str, *devices: Any) -> Any:
        """Load the executable with a key from the cache.

        Args:
          key: the result of `make_key`.
          *devices: the jax devices that will run the executable.

        Returns:
          A jax.stages.Compiled; None if there is no file with this key. If the file is damaged, or
          cannot be loaded for these devices, log a warning and return None.
        """
        if self._directory is None:
            return None
        path = self._directory / f"{key}{_SUFFIX}"
        try:
            data = path.read_bytes()
        except OSError:
            return None
        digest, content = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        if hashlib.sha256(content).digest() != digest:
            logger.warning("%s is compiled again: the file is damaged", path)
            return None
        from jax.experimental import serialize_executable

        try:
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
            logger.warning("%s is compiled again: %s", path, error)
            return None
        if self._can_write:
            # Set the modification time of the file to now. If the cache is full, the files that
            # were not used for the longest time are deleted. Another process may delete this file.
            with contextlib.suppress(FileNotFoundError):
                os.utime(path)
        return compiled

    def store(self, key: str, compiled: Any) -> None:
        """Write an executable to the cache.

        If the file cannot be written, log a warning, and write no more executables in this process.

        Args:
          key: the result of `make_key`.
          compiled: the executable, a jax.stages.Compiled.
        """
        if self._directory is None or not self._can_write:
            return
        from jax.experimental import serialize_executable

        try:
            content = pickle.dumps(serialize_executable.serialize(compiled))
        except (ValueError, NotImplementedError) as error:
            logger.info("an executable is not saved: %s", error)
            return
        temporary = self._directory / f"{key}.{uuid.uuid4().hex}"
        try:
            with self._lock:
                temporary.write_bytes(hashlib.sha256(content).digest() + content)
                temporary.replace(self._directory / f"{key}{_SUFFIX}")
                self._delete_oldest()
        except OSError as error:
            self._can_write = False
            temporary.unlink(missing_ok=True)
            logger.warning("executables are no longer saved in %s: %s", self._directory, error)

    def _delete_oldest(self) -> None:
        assert self._directory is not None
        files = []
        for path in self._directory.glob(f"*{_SUFFIX}"):
            # Skip a file that another process has deleted after `glob` found it.
            with contextlib.suppress(FileNotFoundError):
                files.append((path, path.stat()))
        size = sum(status.st_size for _, status in files)
        for path, status in sorted(files, key=lambda pair: pair[1].st_mtime):
            if size <= _MAX_BYTES:
                return
            path.unlink(missing_ok=True)
            size -= status.st_size


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
    """Return a text that describes the environment for which an executable is compiled.

    The text has the versions of jax, the settings of XLA, and properties of the device and the
    processor. An executable can be used only in an environment with the same text.
    """
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
