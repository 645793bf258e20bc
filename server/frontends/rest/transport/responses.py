"""Replies, and how they are sent."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from starlette.types import Send

from server.codec.array_to_json import JsonText

Header: TypeAlias = tuple[bytes, bytes]
Headers: TypeAlias = Sequence[Header]
Peer: TypeAlias = tuple[str, int] | None

JSON = b"application/json"
TEXT = b"text/plain"
HTML = b"text/html"

# More is handed over in pieces, so that it is copied as the client takes it and not at once.
_PIECE = 1 << 20

_NOT_FOUND = b"""<HTML><HEAD>
<TITLE>404 Not Found</TITLE>
</HEAD><BODY>
<H1>Not Found</H1>
</BODY></HTML>
"""


class Response(NamedTuple):
    """What a request is answered with.

    Attributes:
      code: the canonical name of what it says, as metrics have it.
      model, version, signature: what has answered, or was asked; empty or None for nothing.
    """

    status: int
    body: JsonText
    content_type: bytes = JSON
    headers: Headers = ()
    code: str = "OK"
    model: str = ""
    version: int | None = None
    signature: str = ""


def not_found() -> Response:
    """The page for what is no path of the server's."""
    return Response(404, _NOT_FOUND, HTML)


async def send_response(send: Send, reply: Response) -> None:
    """Sends a reply, whole."""
    headers = [
        (b"content-type", reply.content_type),
        (b"content-length", b"%d" % len(reply.body)),
        *reply.headers,
    ]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    if len(reply.body) <= _PIECE:
        await send({"type": "http.response.body", "body": bytes(reply.body)})
        return
    for piece, is_last in _pieces(reply.body):
        await send({"type": "http.response.body", "body": piece, "more_body": not is_last})


def _pieces(body: JsonText) -> Iterator[tuple[bytes, bool]]:
    view = memoryview(body)
    for start in range(0, len(view), _PIECE):
        yield bytes(view[start : start + _PIECE]), start + _PIECE >= len(view)
