"""Defines an encoded request to a server (`Call`) and the response to it (`Reply`).

The methods of `tpuserve.client.apis.api.Api` are generators. They yield each `Call`, receive its
`Reply`, and return their result.
"""

from collections.abc import Generator, Mapping
from typing import NamedTuple, TypeAlias, TypeVar

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
