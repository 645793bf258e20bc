"""Finds the versions of a model on disk: numbered directories, or the base path itself."""

import logging
import os
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TypeVar

from server.config.model_config import AllPolicy, LatestPolicy, SpecificPolicy, VersionPolicy
from server.storage.keras_files import SUFFIX
from tpuserve.errors import BasePathNotFound, VersionNotFound
from tpuserve.saved_model import nearby

_NUMBER = re.compile(r"[0-9]+")
# The largest number of digits of a version number. Longer names are not converted, because int()
# refuses texts of several thousand digits.
_MAX_DIGITS = 400
_MAX_VERSION = 2**63 - 1
SAVED_MODEL_FILES = ("saved_model.pb", "saved_model.pbtxt")
"""A SavedModel has a file with one of these names."""
_LATEST = LatestPolicy()

Place = TypeVar("Place")

logger = logging.getLogger(__name__)


class Repository:
    """The version directories of one model. Each call of a method reads the disk again.

    Args:
      aspired: the directories of the versions that earlier listings have selected. Such a
        version is not omitted if its directory cannot be examined, because the error may pass.
      find_export: takes a .keras file or the directory of a version, and the version's number;
        returns the directory in which the server exports the .keras file, or None if there is none
        to export.
    """

    def __init__(
        self,
        base_path: Path,
        policy: VersionPolicy = _LATEST,
        aspired: Collection[Path] = (),
        find_export: Callable[[Path, int], Path | None] = lambda place, number: None,
    ) -> None:
        self._base_path = base_path
        self._policy = policy
        self._aspired = aspired
        self._find_export = find_export

    def versions(self) -> dict[int, Path]:
        """Return version → directory, for each directory with a numeric name: "000123" is 123.

        Of two directories with the same number, the last in the order of names counts.
        """
        versions: dict[int, Path] = {}
        for name, number in self._numbered_directories():
            if number in versions:
                logger.warning(
                    "%s and %s in %s are both version %d: using the latter",
                    versions[number].name,
                    name,
                    self._base_path,
                    number,
                )
            versions[number] = self._base_path / name
        return versions or self._base_path_as_version()

    def aspired_versions(self) -> dict[int, Path]:
        """Return version → directory, for the versions that the policy selects.

        The directory of a .keras file is that of its export.
        """
        versions = self._file_as_version() or self.versions()
        if not versions:
            raise self._no_version_error()
        selected = select_versions(versions, self._policy, str(self._base_path))
        if isinstance(self._policy, SpecificPolicy):
            selected = {number: self._directory(number, path) for number, path in selected.items()}
        return {
            number: self._find_export(path, number) or path for number, path in selected.items()
        }

    def _file_as_version(self) -> dict[int, Path]:
        path = self._base_path
        number = number_of_only_version(path.stem)
        try:
            is_served = path.suffix == SUFFIX and path.is_file() and self._find_export(path, number)
        except OSError as error:
            raise self._unreadable_error(error) from error
        return {number: path} if is_served else {}

    def _directory(self, number: int, path: Path) -> Path:
        # If several directories have the same number, such as "7" and "007", prefer the name
        # without leading zeros.
        plain = self._base_path / str(number)
        return plain if self._is_directory(plain) else path

    def _numbered_directories(self) -> list[tuple[str, int]]:
        """Return the sorted names of the version directories, each with its number."""
        try:
            with os.scandir(self._base_path) as entries:
                return sorted(
                    (entry.name, number)
                    for entry in entries
                    if (number := version_number(entry.name)) is not None
                    and self._is_directory(entry)
                )
        except OSError as error:
            if self._base_path.suffix in nearby.KERAS_SUFFIXES and self._base_path.is_file():
                raise BasePathNotFound(nearby.describe_keras_file(self._base_path)) from error
            raise self._unreadable_error(error) from error

    def _unreadable_error(self, error: OSError) -> BasePathNotFound:
        return BasePathNotFound(
            f"model base path {self._base_path} cannot be read: {error.strerror}. Give the "
            f"directory that holds the version directories."
        )

    def _is_directory(self, place: "os.DirEntry[str] | Path") -> bool:
        try:
            return place.is_dir()
        except OSError:
            return self._base_path / place.name in self._aspired

    def _base_path_as_version(self) -> dict[int, Path]:
        path = self._base_path
        if not any((path / name).is_file() for name in SAVED_MODEL_FILES):
            return {}
        return {number_of_only_version(path.name): path}

    def _no_version_error(self) -> VersionNotFound:
        path = self._base_path
        error = VersionNotFound(
            f"no version directory in {path}. Export the model to a directory named a number, as "
            f"{path / '1'}."
        )
        names = sorted(os.listdir(path))[:5]
        for name in names:
            if _has_versions(path / name):
                error.add_note(f"{path / name} has version directories. Give that base path.")
                return error
        error.add_note(f"The directory has {', '.join(names) or 'no entries'}.")
        return error


def _has_versions(path: Path) -> bool:
    try:
        return any(version_number(name) is not None for name in os.listdir(path))
    except OSError:
        # The path is a file, or cannot be read, and so has no versions.
        return False


def version_number(name: str) -> int | None:
    """Return the version number of a directory name; None if the name is not a version number."""
    if not _NUMBER.fullmatch(name) or len(name) > _MAX_DIGITS:
        return None
    number = int(name)
    return number if number <= _MAX_VERSION else None


def number_of_only_version(name: str) -> int:
    """Return the version number of a base path that is itself a SavedModel."""
    number = version_number(name)
    return 1 if number is None else number


def select_versions(
    versions: Mapping[int, Place], policy: VersionPolicy, base_path: str
) -> dict[int, Place]:
    """Return the versions that a policy selects.

    Args:
      versions: version → its directory or remote address; not empty.
    """
    if isinstance(policy, AllPolicy):
        return dict(versions)
    if isinstance(policy, LatestPolicy):
        return latest_versions(versions, policy.count)
    requested = policy.versions
    missing = [number for number in requested if number not in versions]
    if missing:
        logger.warning("requested version %s does not exist in %s", missing, base_path)
    existing = {number: versions[number] for number in requested if number in versions}
    if not existing:
        raise VersionNotFound(
            f"none of the versions {', '.join(map(str, requested)) or '(none given)'} in "
            f"{base_path}; found {', '.join(map(str, sorted(versions)))}. Request "
            f"existing versions."
        )
    return existing


def latest_versions(versions: Mapping[int, Place], count: int) -> dict[int, Place]:
    """Return the `count` versions with the highest numbers."""
    return {number: versions[number] for number in sorted(versions)[-count:]}
