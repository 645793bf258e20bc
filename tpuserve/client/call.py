"""Defines an encoded request to a server (`Call`) and the response to it (`Reply`).

The methods of `tpuserve.client.apis.api.Api` are generators. They yield each `Call`, receive its
`Reply`, and return their result.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar

from tpuserve.errors import InvalidSetting


@dataclass(frozen=True)
class ModelReference:
    """Names the model of a call, and selects its version by a number or a label.

    Attributes:
      label: the label of the version, such as "stable"; "" for none.
    """

    name: str
    version: int | None = None
    label: str = ""

    def __post_init__(self) -> None:
        """Check the attributes.

        Raises:
          InvalidSetting: the name is empty, or both a version and a label are set.
        """
        if not self.name:
            raise InvalidSetting("the name of the model is empty. Give the name that is served.")
        if self.version is not None and self.label:
            raise InvalidSetting(
                f"version {self.version} and label {self.label!r} are given. Give one of them."
            )


@dataclass(frozen=True)
class VersionStatus:
    """The state of a version of a model on a server.

    Attributes:
      state: "START", "LOADING", "AVAILABLE", "UNLOADING" or "END". Servers of the Open Inference
        Protocol report "LOADING", "READY", "UNLOADING" or "UNAVAILABLE".
      error: why the version could not be loaded; "" without an error.
    """

    version: int
    state: str
    error: str = ""


Result = TypeVar("Result")


_NO_HEADERS: Mapping[str, str] = {}


class Call(NamedTuple):
    """An encoded request to a server, over HTTP or gRPC.

    Attributes:
      body: the body of an HTTP POST, or the serialised message over gRPC; None for an HTTP GET.
    """

    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = _NO_HEADERS
    is_retried: bool = True


class Reply(NamedTuple):
    """A successful response of a server to a `Call`.

    Attributes:
      headers: the HTTP headers, a mapping that ignores the case of names; empty over gRPC.
    """

    body: bytes
    headers: Mapping[str, str] = _NO_HEADERS


Steps: TypeAlias = Generator[Call, Reply, Result]
"""A generator that yields calls, receives replies and returns a result."""
