"""Maps versions that are no SavedModels on this machine to directories in the model cache.

Versions in remote storage are downloaded to the cache, and .keras files are exported to it.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from server.storage import keras_files
from server.storage.download import RemoteVersion, VersionDownload
from server.storage.keras_exporter import KerasExporter
from server.storage.listing import RemoteDirectory
from server.storage.model_cache import Lease, ModelCache
from tpuserve.errors import Code, CodedError

# The number of different listings of a version's files that are kept. Older listings are kept as
# well as the latest, because the server can still request a download of the files in them.
_KEPT_CONTENTS = 4

IsCancelled: TypeAlias = Callable[[], bool]


@dataclass(frozen=True)
class _Source:
    """What a directory in the cache is made of.

    Attributes:
      version: equal for all contents of the same version.
      size: the size of the files, in bytes.
      write: writes the directory.
      check: raises an error if the version is refused, also if the cache has it.
    """

    version: tuple[str, int]
    size: int
    write: Callable[[Path, IsCancelled], None]
    check: Callable[[], None] = lambda: None


class RemoteModels:
    """Lists the versions of remote base paths, and downloads versions to the cache.

    Args:
      exporter: exports .keras files, also those that are on this machine; None to refuse them.
    """

    def __init__(self, cache: ModelCache, exporter: KerasExporter | None = None) -> None:
        self._cache = cache
        self._exporter = exporter
        self._digests = keras_files.FileDigests()
        self._sources: dict[Path, _Source] = {}
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
            self._remember(directory, self._download(remote, name, version))
            directories[number] = directory
        return directories

    def find_export(self, place: Path, number: int) -> Path | None:
        """Return the directory in the cache for the export of a .keras file on this machine.

        Args:
          place: the base path of a model, if it is a .keras file; or the directory of a version.

        Returns:
          None if the place has another model than a .keras file, or if such files are refused.
        """
        is_file = place.suffix == keras_files.SUFFIX and place.is_file()
        file = place if is_file else keras_files.find_keras_file(place)
        exporter = self._exporter
        if file is None or exporter is None:
            return None
        digest = self._digests.find(file)

        def check() -> None:
            # The user has named the base path itself, so it may be a link to anywhere.
            if not is_file:
                exporter.check_links(place)

        def export(target: Path, is_cancelled: IsCancelled) -> None:
            exporter.export(file, target, is_cancelled)
            if keras_files.digest_of(file) != digest:
                raise CodedError(f"{file} changed while it was exported.", Code.DATA_LOSS)

        directory = self._cache.directory_of(f"{digest}-{number}", number)
        self._remember(directory, _Source((str(file), number), file.stat().st_size, export, check))
        return directory

    def _download(self, remote: RemoteDirectory, name: str, version: RemoteVersion) -> _Source:
        def download(target: Path, is_cancelled: IsCancelled) -> None:
            max_bytes = self._cache.max_bytes
            VersionDownload(remote.file_system, version, is_cancelled, max_bytes).run(target)
            if remote.with_new_time_limit().list_version(name, version.number) != version:
                raise CodedError(
                    f"{version.uri} changed while it was downloaded. The server downloads it "
                    f"again; upload versions to new directories.",
                    Code.DATA_LOSS,
                )
            file = keras_files.find_keras_file(target)
            if file is not None and self._exporter is not None:
                is_file = version.uri.endswith(keras_files.SUFFIX)
                origin = version.uri if is_file else f"{version.uri}/{file.name}"
                self._exporter.export(file, target, is_cancelled, origin)

        return _Source((version.uri, version.number), version.size, download)

    def _remember(self, directory: Path, source: _Source) -> None:
        """Keep a source, and forget all but the latest `_KEPT_CONTENTS` of the same version."""
        with self._lock:
            self._sources.pop(directory, None)
            self._sources[directory] = source
            known = [
                other for other, kept in self._sources.items() if kept.version == source.version
            ]
            for other in known[:-_KEPT_CONTENTS]:
                del self._sources[other]

    def is_remote(self, directory: Path) -> bool:
        """Return whether `fetch` must write a directory before it can be loaded."""
        with self._lock:
            return directory in self._sources

    def fetch(self, directory: Path, is_cancelled: IsCancelled) -> Lease:
        """Write a version to the cache if it is not there, and return a lease that keeps it there.

        Raises:
          KeyError: the source of the directory is not kept, so `is_remote` returns False.
          ModelFileRefused: a .keras file cannot be exported, or a link to it is refused.
        """
        with self._lock:
            source = self._sources[directory]
        source.check()
        return self._cache.acquire(
            directory, source.size, lambda target: source.write(target, is_cancelled), is_cancelled
        )
