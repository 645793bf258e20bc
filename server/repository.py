"""What is on disk: the versions of a model below its base path."""

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path

from tpuserve.errors import BasePathNotFound, VersionNotFound

_NUMBER = re.compile(r"[0-9]+")
_MAX_VERSION = 2**63 - 1

logger = logging.getLogger(__name__)


class Repository:
    """The version directories of one model; each look at it reads the disk anew."""

    def __init__(self, base_path: Path) -> None:
        """Takes the directory that holds one directory a version."""
        self._base_path = base_path

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
        """The versions that should be served: the latest one.

        Raises:
          BasePathNotFound: there is no such directory, or it cannot be read.
          VersionNotFound: the directory holds no version.
        """
        versions = self.versions()
        if not versions:
            raise VersionNotFound(self._no_version())
        return latest(versions, 1)

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
