"""The versions of a model on disk: the numbered directories below its base path."""

import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from server.config.model_config import AllPolicy, LatestPolicy, SpecificPolicy, VersionPolicy
from tpuserve.errors import BasePathNotFound, VersionNotFound

_NUMBER = re.compile(r"[0-9]+")
_MAX_VERSION = 2**63 - 1
_LATEST = LatestPolicy()

logger = logging.getLogger(__name__)


class Repository:
    """The version directories of one model. Every method reads the directory again."""

    def __init__(self, base_path: Path, policy: VersionPolicy = _LATEST) -> None:
        """Create a repository.

        Args:
          base_path: the directory with one numbered directory per version.
          policy: the versions to serve.
        """
        self._base_path = base_path
        self._policy = policy

    def versions(self) -> dict[int, Path]:
        """Return version → directory for each directory with a numeric name: "000123" is 123.

        Of two directories with the same number, the last in the order of names counts.

        Raises:
          BasePathNotFound: the base path is not a directory, or cannot be read.
        """
        versions: dict[int, Path] = {}
        for name in self._directories():
            number = int(name) if _NUMBER.fullmatch(name) else -1
            if not 0 <= number <= _MAX_VERSION:
                continue
            if number in versions:
                logger.warning(
                    "%s and %s in %s are both version %d: using the latter",
                    versions[number].name,
                    name,
                    self._base_path,
                    number,
                )
            versions[number] = self._base_path / name
        return versions

    def aspired_versions(self) -> dict[int, Path]:
        """Return version → directory for the versions that the policy selects.

        Raises:
          BasePathNotFound: the base path is not a directory, or cannot be read.
          VersionNotFound: the base path holds no version, or no version that the policy selects.
        """
        versions = self.versions()
        if not versions:
            raise VersionNotFound(self._no_version_message())
        if isinstance(self._policy, SpecificPolicy):
            return self._specific(versions, self._policy.versions)
        if isinstance(self._policy, AllPolicy):
            return versions
        return latest_versions(versions, self._policy.count)

    def _specific(self, versions: Mapping[int, Path], requested: Sequence[int]) -> dict[int, Path]:
        missing = [number for number in requested if number not in versions]
        if missing:
            logger.warning("requested version %s does not exist in %s", missing, self._base_path)
        directories = {number: self._directory(number, versions) for number in requested}
        existing = {number: path for number, path in directories.items() if path is not None}
        if not existing:
            raise VersionNotFound(
                f"none of the versions {', '.join(map(str, requested)) or '(none given)'} in "
                f"{self._base_path}; found {', '.join(map(str, sorted(versions)))}. Request "
                f"existing versions."
            )
        return existing

    def _directory(self, number: int, versions: Mapping[int, Path]) -> Path | None:
        # If several directories have the same number, prefer the name without leading zeros.
        plain = self._base_path / str(number)
        return plain if plain.is_dir() else versions.get(number)

    def _directories(self) -> list[str]:
        try:
            with os.scandir(self._base_path) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except OSError as error:
            raise BasePathNotFound(
                f"model base path {self._base_path} cannot be read: {error.strerror}. Give the "
                f"directory that holds the version directories."
            ) from error

    def _no_version_message(self) -> str:
        path = self._base_path
        if (path / "saved_model.pb").exists():
            return (
                f"no version directory in {path}; found saved_model.pb, so it is itself a "
                f"version. Give its parent directory {path.parent}, and name the version a number."
            )
        entries = ", ".join(sorted(os.listdir(path))[:5]) or "nothing"
        return (
            f"no version directory in {path}; found {entries}. Export the model to a directory "
            f"named a number, as {path / '1'}."
        )


def latest_versions(versions: Mapping[int, Path], count: int) -> dict[int, Path]:
    """Return the `count` versions with the highest numbers."""
    return {number: versions[number] for number in sorted(versions)[-count:]}
