"""The types of HTTP headers and client addresses in uvicorn."""

from collections.abc import Sequence
from typing import TypeAlias

Header: TypeAlias = tuple[bytes, bytes]
"""A name and a value. The name of a request header is in lower case."""
Headers: TypeAlias = Sequence[Header]
Peer: TypeAlias = tuple[str, int] | None
"""Host and port of a client. None if unknown."""


def get_header(headers: Headers, name: bytes) -> bytes | None:
    """Return the value of a header, or None if the request has no such header.

    If the header occurs several times, its first value is returned.

    Args:
      headers: The headers of a request.
      name: The name in lower case.
    """
    for header, value in headers:
        if header == name:
            return value
    return None
