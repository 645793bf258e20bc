"""From the versions that are wanted to the versions that are loaded."""

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from server.servable import Load, Servable, State, VersionStatus
from tpuserve.errors import ModelNotFound

logger = logging.getLogger(__name__)


class Manager:
    """The servables of all models.

    Its policy is to stay available: a new version is loaded before an old one goes, and an old
    one is closed when the last request that uses it has finished.
    """

    def __init__(self, load: Load) -> None:
        """Takes the function that turns a version's directory into a model."""
        self._load = load
        self._servables: dict[str, dict[int, Servable]] = {}
        self._aspired: dict[str, Mapping[int, Path]] = {}
        self._lock = threading.Lock()
        self._one_change_at_a_time = threading.Lock()

    def aspire(self, name: str, versions: Mapping[int, Path]) -> None:
        """Makes exactly these versions of a model the loaded ones; what is left out is unloaded.

        Blocks until that is so. A version that fails to load ends with its error in the status,
        and is not tried again until it has been left out once; while none of the wanted versions
        is available the old ones stay.
        """
        with self._one_change_at_a_time:
            known = self._aspired.get(name, {})
            self._aspired[name] = dict(versions)
            for version in sorted(versions.keys() - known.keys()):
                self._add(name, version).load(self._load, versions[version])
            available = [each for each in self._of(name) if each.status.state is State.AVAILABLE]
            if versions and not any(each.version in versions for each in available):
                return
            for servable in available:
                if servable.version not in versions:
                    servable.unload()

    @contextmanager
    def use(self, name: str, version: int | None = None) -> Iterator[Servable]:
        """A version of a model, not unloaded while the block runs; the latest where none is asked.

        Raises:
          ModelNotFound: there is no such model or version, or it is not available.
        """
        servable = self._acquire(name, version)
        try:
            yield servable
        finally:
            servable.release()

    def status(self, name: str, version: int | None = None) -> list[VersionStatus]:
        """The status of every version that was ever aspired, or of one; newest first.

        Raises:
          ModelNotFound: no version of the model is known, or not that one.
        """
        found = self._of(name)
        if not found:
            raise ModelNotFound(f"Could not find any versions of model {name}")
        if version is None:
            return [each.status for each in found]
        for each in found:
            if each.version == version:
                return [each.status]
        raise ModelNotFound(f"Could not find version {version} of model {name}")

    def close(self, timeout_seconds: float) -> bool:
        """Unloads everything, waiting so long at most for the requests of each version.

        Returns:
          Whether all is unloaded: a version that is still in use then stays.
        """
        with self._one_change_at_a_time:
            servables = [each for name in list(self._servables) for each in self._of(name)]
            for each in servables:
                each.unload(timeout_seconds)
            return all(each.status.state is not State.UNLOADING for each in servables)

    def _add(self, name: str, version: int) -> Servable:
        servable = Servable(name, version)
        with self._lock:
            self._servables.setdefault(name, {})[version] = servable
        return servable

    def _of(self, name: str) -> list[Servable]:
        with self._lock:
            versions = self._servables.get(name, {})
            return [versions[version] for version in sorted(versions, reverse=True)]

    def _acquire(self, name: str, version: int | None) -> Servable:
        for servable in self._of(name):
            if version in (None, servable.version) and servable.try_acquire():
                return servable
        asked = f"Latest({name})" if version is None else f"Specific({name}, {version})"
        raise ModelNotFound(f"Servable not found for request: {asked}")
