"""Defines an encoded request to a server (`Call`) and the response to it (`Reply`).

The methods of `tpuserve.client.apis.api.Api` are generators. They yield each `Call`, receive its
`Reply`, and return their result. The client sends the calls, so that the blocking client and the
asyncio client share these methods.
"""

from collections.abc import Generator, Mapping
from typing import NamedTuple, TypeAlias, TypeVar

Result = TypeVar("Result")


_NO_HEADERS: Mapping[str, str] = {}


class Call(NamedTuple):
    """An encoded request to a server, over HTTP or gRPC.

    Attributes:
      path: the path of the URL over HTTP, or the full name of the method over gRPC.
      body: the body of an HTTP POST, or the serialised message over gRPC; None for an HTTP GET.
      headers: HTTP headers; not used over gRPC.
      is_retried: whether the call is sent again if the server cannot answer at the moment.
    """

    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = _NO_HEADERS
    is_retried: bool = True


class Reply(NamedTuple):
    """A successful response of a server to a `Call`.

    Attributes:
      body: the body of the HTTP response, or the serialised message over gRPC.
      headers: the HTTP headers, a mapping that ignores the case of names; empty over gRPC.
    """

    body: bytes
    headers: Mapping[str, str] = _NO_HEADERS


Steps: TypeAlias = Generator[Call, Reply, Result]
"""A generator that yields calls, receives replies and returns a result."""
