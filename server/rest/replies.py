"""Replies, and how they are sent."""

from collections.abc import Sequence
from typing import NamedTuple

from starlette.types import Send

Header = tuple[bytes, bytes]

JSON = b"application/json"
TEXT = b"text/plain"
HTML = b"text/html"

_NOT_FOUND = b"""<HTML><HEAD>
<TITLE>404 Not Found</TITLE>
</HEAD><BODY>
<H1>Not Found</H1>
</BODY></HTML>
"""


class Reply(NamedTuple):
    """What a request is answered with."""

    status: int
    body: bytes
    content_type: bytes = JSON
    headers: Sequence[Header] = ()


def not_found() -> Reply:
    """The page for what is no path of the server's."""
    return Reply(404, _NOT_FOUND, HTML)


async def send_reply(send: Send, reply: Reply) -> None:
    """Sends a reply, whole."""
    headers = [
        (b"content-type", reply.content_type),
        (b"content-length", b"%d" % len(reply.body)),
        *reply.headers,
    ]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
