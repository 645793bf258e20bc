"""Which models a server is to serve, as frozen data."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from tpuserve.errors import BasePathNotFound, InvalidConfig

PLATFORM = "tensorflow"

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_FILE = "file://"


@dataclass(frozen=True)
class Latest:
    """The versions with the highest numbers, so many of them."""

    count: int = 1


@dataclass(frozen=True)
class All:
    """Every version that is there."""


@dataclass(frozen=True)
class Specific:
    """The versions of these numbers."""

    versions: tuple[int, ...]


VersionPolicy: TypeAlias = Latest | All | Specific


@dataclass(frozen=True)
class RequestLogging:
    """What is logged of the requests to one model.

    Attributes:
      type: kind of the log collector.
      filename_prefix: of the files that the log goes to.
      sampling_rate: of all requests, from 0 to 1.
    """

    type: str = ""
    filename_prefix: str = ""
    sampling_rate: float = 0


@dataclass(frozen=True)
class ModelConfig:
    """One model.

    Attributes:
      base_path: absolute, or a URI; holds one directory a version.
      labels: label → version.
      logging: None for no log.
    """

    name: str
    base_path: str
    policy: VersionPolicy = Latest()
    labels: Mapping[str, int] = field(default_factory=dict)
    logging: RequestLogging | None = None
    platform: str = PLATFORM

    @property
    def path(self) -> Path:
        """Where the base path is; BasePathNotFound for one on another file system."""
        return local_path(self.base_path)


@dataclass(frozen=True)
class ModelServerConfig:
    """All models of a server, in the order of the configuration.

    Raises:
      InvalidConfig: a model twice, a path that is not absolute or that has "..",
        a platform that is not "tensorflow". The texts are TensorFlow Serving's.
    """

    models: tuple[ModelConfig, ...] = ()

    def __post_init__(self) -> None:
        for name, count in Counter(each.name for each in self.models).items():
            if count > 1:
                raise InvalidConfig(f"Illegal to list model {name} multiple times in config list")
        for each in self.models:
            _check_path(each.name, each.base_path)
            if each.platform != PLATFORM:
                raise InvalidConfig(
                    f"Model {each.name} requests unsupported platform {each.platform}"
                )

    def names(self) -> Sequence[str]:
        """The models' names, in their order."""
        return [each.name for each in self.models]


def local_path(base_path: str) -> Path:
    """Where a base path is that may be written as a URI: "file:///models" is "/models".

    Raises:
      BasePathNotFound: it is on another file system.
    """
    path = base_path.removeprefix(_FILE)
    if _URI.match(path):
        raise BasePathNotFound(
            f"model base path {base_path} is on {path.partition('://')[0]}://, and only this "
            f"machine's own files are read. Mount it, or copy it here, and give that directory."
        )
    return Path(path)


def _check_path(name: str, base_path: str) -> None:
    if not (base_path.startswith("/") or _URI.match(base_path)):
        raise InvalidConfig(
            f"Expected model {name} to have an absolute path or URI; got base_path()={base_path}"
        )
    if ".." in PurePosixPath(base_path).parts:
        raise InvalidConfig(
            f"Expected model {name} to have a path without '..'; got base_path()={base_path}. "
            f"Give the path that it leads to."
        )
