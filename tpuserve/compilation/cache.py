"""Caches compilation results on disk. A key contains a module's fingerprint and a topology."""

import contextlib
import dataclasses
import hashlib
import json
import uuid
from pathlib import Path

from tpuserve.compilation.stats import CompileResult, CompileStats
from tpuserve.files.cache_directory import find_cache_directory


class CompileCache:
    """A cache of compilation results: a directory with a JSON file for each result.

    Several processes may use the directory at the same time.
    """

    def __init__(self, directory: Path | None) -> None:
        """Create a cache in a directory; if `directory` is None, the cache stores nothing."""
        self._directory = directory

    @staticmethod
    def for_user() -> "CompileCache":
        """Return the cache that all compilations of the current user share.

        The cache is in $TPUSERVE_CACHE_DIR if that is set, else in the platform's user cache
        directory.
        """
        return CompileCache(find_cache_directory() / "compile")

    def find(self, *content: str) -> CompileResult | None:
        """Return the result stored under a key; None if there is no readable result.

        Args:
          *content: The parts of the key: the fingerprint of the module, the topology, and the
            versions of jaxlib and libtpu.
        """
        path = self._path(content)
        if path is None:
            return None
        try:
            data = json.loads(path.read_text())
            stats = data["figures"]
            return CompileResult(None if stats is None else CompileStats(**stats), data["error"])
        except (OSError, ValueError, KeyError, TypeError):
            # A file that is missing or truncated, or was written by another version of tpuserve,
            # counts as no result: the caller compiles again, and `store` replaces the file.
            return None

    def store(self, result: CompileResult, *content: str) -> None:
        """Store a result under a key; do nothing if the directory cannot be written.

        Args:
          result: The result to store.
          *content: The parts of the key: the same as for `find`.
        """
        path = self._path(content)
        if path is None:
            return
        data = {
            "figures": None if result.stats is None else dataclasses.asdict(result.stats),
            "error": result.error,
        }
        temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(data))
            temporary.replace(path)

    def _path(self, content: tuple[str, ...]) -> Path | None:
        if self._directory is None:
            return None
        digest = hashlib.sha256("\n".join(content).encode()).hexdigest()
        return self._directory / digest[:2] / f"{digest}.json"
