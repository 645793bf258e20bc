"""Caches compilation results on disk. A key contains a module's fingerprint and a topology."""

import contextlib
import dataclasses
import hashlib
import json
from pathlib import Path

from tpuserve.compilation.stats import CompileResult, CompileStats
from tpuserve.files.disk_cache import DiskCache, find_cache_directory


class CompileCache:
    """A cache of compilation results: a directory with a JSON file for each result.

    Several processes may use the directory at the same time.
    """

    def __init__(self, directory: Path | None) -> None:
        self._files = None if directory is None else DiskCache(directory, ".json")

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
        if self._files is None:
            return None
        try:
            data = json.loads(self._files.find(_key(content)) or b"")
            stats = data["figures"]
            return CompileResult(None if stats is None else CompileStats(**stats), data["error"])
        except (ValueError, KeyError, TypeError):
            # A file that is missing or truncated, or was written by another version of tpuserve,
            # counts as no result: the caller compiles again, and `store` replaces the file.
            return None

    def store(self, result: CompileResult, *content: str) -> None:
        """Store a result under a key; do nothing if the directory cannot be written."""
        data = {
            "figures": None if result.stats is None else dataclasses.asdict(result.stats),
            "error": result.error,
        }
        if self._files is not None:
            with contextlib.suppress(OSError):
                self._files.store(_key(content), json.dumps(data).encode())


def _key(content: tuple[str, ...]) -> str:
    return hashlib.sha256("\n".join(content).encode()).hexdigest()
