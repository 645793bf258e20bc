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
    """
    for header, value in headers:
        if header == name:
            return value
    return None


def accepts_gzip(headers: Headers) -> bool:
    """Return whether the client names gzip in Accept-Encoding, and not with the weight 0."""
    for coding in (get_header(headers, b"accept-encoding") or b"").lower().split(b","):
        name, _, weight = coding.replace(b" ", b"").partition(b";q=")
        if name == b"gzip":
            return not weight or bool(weight.strip(b"0."))
    return False
