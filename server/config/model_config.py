"""The configuration of the models that a server serves, as immutable dataclasses."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from tpuserve.errors import BasePathNotFound, InvalidConfig
from tpuserve.files.uris import is_uri

PLATFORM = "tensorflow"
TENSORFLOW_ENGINE, XLA_ENGINE = ENGINES = ("tensorflow", "xla")

_FILE_SCHEME = "file://"

REMOTE_SCHEMES = ("gs", "s3", "az", "hf", "http", "https")
"""The schemes of the base paths that are downloaded to the model cache."""


@dataclass(frozen=True)
class LatestPolicy:
    """The version policy "latest": serve the `count` versions with the highest numbers."""

    count: int = 1


@dataclass(frozen=True)
class AllPolicy:
    """The version policy "all": serve every version below the model's base path."""


@dataclass(frozen=True)
class SpecificPolicy:
    """The version policy "specific": serve only the versions with the listed numbers."""

    versions: tuple[int, ...]


VersionPolicy: TypeAlias = LatestPolicy | AllPolicy | SpecificPolicy


TFRECORD, JSON_LINES = LOG_FORMATS = ("tfrecord", "jsonl")


@dataclass(frozen=True)
class RequestLogging:
    """The configuration of one model's request log.

    Attributes:
      filename_prefix: the absolute path, or the URL, with which the names of the files begin.
      sampling_rate: the fraction of the requests that is logged, from 0 to 1.
      format: "tfrecord" or "jsonl"; it is also the suffix of the files.
      max_total_bytes: the largest size of the log's files on this machine together, in bytes; 0 for
        no limit, or for 1 GiB if the files are uploaded to a URL.
    """

    type: str = ""
    filename_prefix: str = ""
    sampling_rate: float = 0
    format: str = TFRECORD
    max_total_bytes: int = 0

    @property
    def is_remote(self) -> bool:
        """Whether the files are uploaded to a URL."""
        return is_uri(self.filename_prefix)


@dataclass(frozen=True)
class QueueLimits:
    """The limits of the queue in which a model's requests wait to run.

    None stands for the value of the command-line flag of the same name.

    Attributes:
      max_concurrent_runs: the largest number of the model's requests that run at the same time; 0
        lets the server choose this number.
      max_queue: the largest number of requests that wait to run; 0 for no limit.
      max_queue_ms: the longest time that a request may wait to run, in milliseconds; 0 for no
        limit.
    """

    max_concurrent_runs: int | None = None
    max_queue: int | None = None
    max_queue_ms: int | None = None


@dataclass(frozen=True)
class ModelConfig:
    """The configuration of one model.

    Attributes:
      base_path: an absolute path or a URI of a directory, which holds one numbered directory per
        version.
      logging: the configuration of the request log; None for no log.
      platform: TensorFlow Serving's name of the kind of model; only "tensorflow" can be served.
      versions_required: whether to refuse a model configuration if this model's base path has no
        version; None for the value of --fail_if_no_model_versions_found.
      engine: the runtime of the model's {serve} metagraph, "tensorflow" or "xla"; empty for the
        value of --engine.
      pinned: whether the model is loaded at the start and stays in memory, even with --lazy_load.
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
    pinned: bool = False

    @property
    def path(self) -> Path:
        """The base path as a local path, without the scheme of a file:// URI."""
        return local_path(self.base_path)

    @property
    def is_remote(self) -> bool:
        """Whether the base path is in a remote file system, so that versions must be downloaded."""
        return is_remote(self.base_path)

    @property
    def is_local(self) -> bool:
        """Whether the base path is on this machine: a path, or a file:// URI."""
        return not is_uri(self.base_path.removeprefix(_FILE_SCHEME))


@dataclass(frozen=True)
class ModelServerConfig:
    """The configurations of all models of a server, in the order of the configuration file.

    Raises:
      InvalidConfig: a model is listed twice, a base path is not absolute or contains "..", or a
        platform is not "tensorflow". The error texts are those of TensorFlow Serving.
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
        """Return the names of the models in the order of the configuration."""
        return [model.name for model in self.models]


def is_remote(base_path: str) -> bool:
    """Return whether a base path is a URI of a remote file system that the server can read."""
    return is_uri(base_path) and base_path.partition("://")[0].lower() in REMOTE_SCHEMES


def local_path(base_path: str) -> Path:
    """Convert a path or a file:// URI to a local path: "file:///models" becomes "/models"."""
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
    # Parse only the paths with two dots: a configuration may have a thousand models.
    if ".." in base_path and ".." in PurePosixPath(base_path).parts:
        raise InvalidConfig(
            f"Expected model {name} to have a path without '..'; got base_path()={base_path}. "
            f"Give the path without '..'."
        )
