"""The requests that an API makes of a transport, and the responses to them.

The methods of an API are generators: they yield each `Call`, receive its `Reply`, and return their
result. One implementation of an API so serves blocking and asyncio clients.
"""

from collections.abc import Generator, Mapping
from typing import NamedTuple, TypeAlias, TypeVar

Result = TypeVar("Result")


_NO_HEADERS: Mapping[str, str] = {}


class Call(NamedTuple):
    """A request to a server.

    Attributes:
      path: the path of the URL over HTTP, or the full name of the method over gRPC.
      body: the body of a POST over HTTP, or the serialised message over gRPC; None for a GET.
      headers: headers of HTTP.
      is_retried: whether the call is sent again if the server cannot answer at the moment.
    """

    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = _NO_HEADERS
    is_retried: bool = True


class Reply(NamedTuple):
    """The response to a call that succeeded.

    Attributes:
      body: the body, or the serialised message over gRPC.
      headers: the headers of HTTP, whose names ignore case.
    """

    body: bytes
    headers: Mapping[str, str] = _NO_HEADERS


Steps: TypeAlias = Generator[Call, Reply, Result]
"""A generator that yields calls, receives replies and returns a result."""
