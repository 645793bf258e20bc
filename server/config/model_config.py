"""The configuration of the models that a server serves, as immutable dataclasses."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from tpuserve.errors import BasePathNotFound, InvalidConfig

PLATFORM = "tensorflow"
TENSORFLOW_ENGINE, XLA_ENGINE = ENGINES = ("tensorflow", "xla")

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_FILE_SCHEME = "file://"

REMOTE_SCHEMES = ("gs", "s3", "az", "hf", "http", "https")
"""The schemes of the base paths that are downloaded to the model cache."""


@dataclass(frozen=True)
class LatestPolicy:
    """Serve the `count` versions with the highest numbers."""

    count: int = 1


@dataclass(frozen=True)
class AllPolicy:
    """Serve every version below the base path."""


@dataclass(frozen=True)
class SpecificPolicy:
    """Serve the listed versions."""

    versions: tuple[int, ...]


VersionPolicy: TypeAlias = LatestPolicy | AllPolicy | SpecificPolicy


@dataclass(frozen=True)
class RequestLogging:
    """The request log of one model.

    Attributes:
      type: the kind of the log collector.
      filename_prefix: the prefix of the log files' paths.
      sampling_rate: the fraction of requests that are logged, from 0 to 1.
    """

    type: str = ""
    filename_prefix: str = ""
    sampling_rate: float = 0


@dataclass(frozen=True)
class QueueLimits:
    """The limits of one model's queue; None stands for the value of the flag of the same name.

    Attributes:
      max_concurrent_runs: how many requests of the model run at the same time; 0 for as many as the
        server chooses.
      max_queue: how many requests may wait for a run; 0 for no limit.
      max_queue_ms: how long a request may wait for a run, in milliseconds; 0 for no limit.
    """

    max_concurrent_runs: int | None = None
    max_queue: int | None = None
    max_queue_ms: int | None = None


@dataclass(frozen=True)
class ModelConfig:
    """The configuration of one model.

    Attributes:
      name: the name that clients use.
      base_path: an absolute path or a URI; the directory holds one numbered directory per version.
      policy: the versions to serve.
      labels: version label → version number.
      logging: the request log; None for no log.
      platform: the runtime of the model; only "tensorflow" can be served.
      limits: the limits of the model's queue.
      versions_required: whether a configuration is refused while the base path of this model has no
        version; None for the value of --fail_if_no_model_versions_found.
      engine: the runtime of the model's {serve} metagraph, one of `ENGINES`; empty for the value of
        --engine.
    """

    name: str
    base_path: str
    policy: VersionPolicy = LatestPolicy()
    labels: Mapping[str, int] = field(default_factory=dict)
    logging: RequestLogging | None = None
    platform: str = PLATFORM
    limits: QueueLimits = QueueLimits()
    versions_required: bool | None = None
    engine: str = ""

    @property
    def path(self) -> Path:
        """The base path as a local path.

        Raises:
          BasePathNotFound: the base path is a URI of another file system.
        """
        return local_path(self.base_path)

    @property
    def is_remote(self) -> bool:
        """Whether the versions are downloaded before they are loaded; see `REMOTE_SCHEMES`."""
        return is_remote(self.base_path)

    @property
    def is_local(self) -> bool:
        """Whether the base path is local: no URI, or a file:// URI."""
        return not is_uri(self.base_path.removeprefix(_FILE_SCHEME))


@dataclass(frozen=True)
class ModelServerConfig:
    """All models of a server, in the order of the configuration.

    Raises:
      InvalidConfig: a model is listed twice, a base path is not absolute or contains "..", or a
        platform is not "tensorflow". The texts are TensorFlow Serving's.
    """

    models: tuple[ModelConfig, ...] = ()

    def __post_init__(self) -> None:
        for name, count in Counter(model.name for model in self.models).items():
            if count > 1:
                raise InvalidConfig(f"Illegal to list model {name} multiple times in config list")
        for model in self.models:
            _check_base_path(model.name, model.base_path)
            if model.platform != PLATFORM:
                raise InvalidConfig(
                    f"Model {model.name} requests unsupported platform {model.platform}"
                )

    def names(self) -> Sequence[str]:
        """Return the names of the models in their order."""
        return [model.name for model in self.models]


def is_uri(base_path: str) -> bool:
    """Return whether a base path is a URI, such as "gs://bucket/resnet" or "file:///models"."""
    return _URI.match(base_path) is not None


def is_remote(base_path: str) -> bool:
    """Return whether a base path has one of the `REMOTE_SCHEMES`."""
    return is_uri(base_path) and base_path.partition("://")[0].lower() in REMOTE_SCHEMES


def local_path(base_path: str) -> Path:
    """Convert a base path or a file:// URI to a local path: "file:///models" is "/models".

    Raises:
      BasePathNotFound: the URI names another file system.
    """
    path = base_path.removeprefix(_FILE_SCHEME)
    if is_uri(path):
        raise BasePathNotFound(
            f"model base path {base_path} is on {path.partition('://')[0]}://, and the server "
            f"reads this machine's own files and {', '.join(REMOTE_SCHEMES)}. Mount it, or copy it "
            f"here, and give that directory."
        )
    return Path(path)


def _check_base_path(name: str, base_path: str) -> None:
    if not (base_path.startswith("/") or is_uri(base_path)):
        raise InvalidConfig(
            f"Expected model {name} to have an absolute path or URI; got base_path()={base_path}"
        )
    if ".." in PurePosixPath(base_path).parts:
        raise InvalidConfig(
            f"Expected model {name} to have a path without '..'; got base_path()={base_path}. "
            f"Give the path without '..'."
        )
