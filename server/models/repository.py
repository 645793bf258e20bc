"""What is on disk: the versions of a model below its base path."""

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
    """The version directories of one model; each look at it reads the disk anew."""

    def __init__(self, base_path: Path, policy: VersionPolicy = _LATEST) -> None:
        """Takes the directory that holds one directory a version, and which of them to serve."""
        self._base_path = base_path
        self._policy = policy

    def versions(self) -> dict[int, Path]:
        """Version → its directory, for every directory whose name is a number: "000123" is 123.

        Where two directories name one number, the later in the order of names counts.

        Raises:
          BasePathNotFound: there is no such directory, or it cannot be read.
        """
        found: dict[int, Path] = {}
        for name in self._directories():
            number = int(name) if _NUMBER.fullmatch(name) else -1
            if not 0 <= number <= _MAX_VERSION:
                continue
            if number in found:
                logger.warning(
                    "%s and %s in %s are both version %d: the latter is used",
                    found[number].name,
                    name,
                    self._base_path,
                    number,
                )
            found[number] = self._base_path / name
        return found

    def aspired(self) -> dict[int, Path]:
        """The versions that should be served, by the policy.

        Raises:
          BasePathNotFound: there is no such directory, or it cannot be read.
          VersionNotFound: the directory holds no version, or none of those asked for.
        """
        versions = self.versions()
        if not versions:
            raise VersionNotFound(self._no_version())
        if isinstance(self._policy, SpecificPolicy):
            return self._specific(versions, self._policy.versions)
        if isinstance(self._policy, AllPolicy):
            return versions
        return latest(versions, self._policy.count)

    def _specific(self, versions: Mapping[int, Path], wanted: Sequence[int]) -> dict[int, Path]:
        missing = [number for number in wanted if number not in versions]
        if missing:
            logger.warning(
                "version %s of %s is to be served and not there", missing, self._base_path
            )
        found = {number: self._directory(number, versions) for number in wanted}
        there = {number: path for number, path in found.items() if path is not None}
        if not there:
            raise VersionNotFound(
                f"none of the versions {', '.join(map(str, wanted)) or '(none given)'} in "
                f"{self._base_path}; found {', '.join(map(str, sorted(versions)))}. Ask for some "
                f"that are there."
            )
        return there

    def _directory(self, number: int, versions: Mapping[int, Path]) -> Path | None:
        # The plain name goes first, whatever else spells the same number.
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

    def _no_version(self) -> str:
        path = self._base_path
        if (path / "saved_model.pb").exists():
            return (
                f"no version directory in {path}; found saved_model.pb, so it is itself a "
                f"version. Give its parent directory {path.parent}, and name the version a number."
            )
        found = ", ".join(sorted(os.listdir(path))[:5]) or "nothing"
        return (
            f"no version directory in {path}; found {found}. Export the model to a directory "
            f"named a number, as {path / '1'}."
        )


def latest(versions: Mapping[int, Path], count: int) -> dict[int, Path]:
    """The highest versions out of some, at most `count` of them."""
    return {number: versions[number] for number in sorted(versions)[-count:]}
