"""Maps model versions in remote storage to directories in the cache of downloaded versions."""

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from server.storage.download import RemoteVersion, VersionDownload
from server.storage.listing import RemoteDirectory
from server.storage.model_cache import Lease, ModelCache
from tpuserve.errors import Code, CodedError

# The number of different listings of a version's files that are kept. Older listings are kept as
# well as the latest, because the server can still request a download of the files in them.
_KEPT_CONTENTS = 4

logger = logging.getLogger(__name__)


class RemoteModels:
    """Lists the versions of remote base paths, and downloads versions to the cache."""

    def __init__(self, cache: ModelCache) -> None:
        self._cache = cache
        # Directory in the cache → (base path, name of the version's directory below it, the files
        # of the version).
        self._sources: dict[Path, tuple[RemoteDirectory, str, RemoteVersion]] = {}
        self._lock = threading.Lock()

    def find_directories(
        self, remote: RemoteDirectory, names: Mapping[int, str]
    ) -> dict[int, Path]:
        """List the files of versions, and return the directory of each version in the cache.

        The contents of the files determine the directory: if the files of a version change, the
        version gets another directory.

        Args:
          names: version → the name of its directory below the base path; "" if the base path itself
            is the version.
        """
        directories = {}
        for number, name in names.items():
            version = remote.list_version(name, number)
            directory = self._cache.directory_of(version.fingerprint, number)
            with self._lock:
                self._sources.pop(directory, None)
                self._sources[directory] = (remote, name, version)
                self._forget_old(version)
            directories[number] = directory
        return directories

    def _forget_old(self, version: RemoteVersion) -> None:
        """Forget all but the latest `_KEPT_CONTENTS` different listings of a version's files."""
        known = [
            directory
            for directory, (_, _, other) in self._sources.items()
            if (other.uri, other.number) == (version.uri, version.number)
        ]
        for directory in known[:-_KEPT_CONTENTS]:
            del self._sources[directory]

    def is_remote(self, directory: Path) -> bool:
        """Return whether a directory is from `find_directories` and its file listing is still kept.

        `fetch` needs the file listing.
        """
        with self._lock:
            return directory in self._sources

    def fetch(self, directory: Path, is_cancelled: Callable[[], bool]) -> Lease:
        """Download a version if the cache does not have it, and return a lease that keeps it there.

        Raises:
          KeyError: the file listing of the directory is not kept, so `is_remote` returns False.
        """
        with self._lock:
            remote, name, version = self._sources[directory]

        def download(target: Path) -> None:
            max_bytes = self._cache.max_bytes
            VersionDownload(remote.file_system, version, is_cancelled, max_bytes).run(target)
            if remote.with_new_time_limit().list_version(name, version.number) != version:
                raise CodedError(
                    f"{version.uri} changed while it was downloaded. The server downloads it "
                    f"again; upload versions to new directories.",
                    Code.DATA_LOSS,
                )

        return self._cache.acquire(directory, version.size, download, is_cancelled)
