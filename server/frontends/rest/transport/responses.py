"""The response to a REST request, and the function that sends it."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from starlette.types import Send

from server.admission.memory_budget import MemoryReservation
from server.codec.array_to_json import JsonText
from server.process.logs import TraceIds

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


JSON = b"application/json"
TEXT = b"text/plain"
METRICS_TEXT = b"text/plain; version=0.0.4; charset=utf-8"
"""The content type of Prometheus's text format."""
HTML = b"text/html"

# A body with more bytes than this is sent in chunks of this size. ASGI requires a copy of the
# bytes. With chunks, only the copy of one chunk at a time is in memory.
_CHUNK_BYTES = 1 << 20

_NOT_FOUND = b"""<HTML><HEAD>
<TITLE>404 Not Found</TITLE>
</HEAD><BODY>
<H1>Not Found</H1>
</BODY></HTML>
"""


class Response(NamedTuple):
    """The response to a REST request, with the details that metrics and the access log record.

    Attributes:
      version: The model version that has answered; or the requested version, if no version has
        answered. None if the request names no version either.
      memory: The reservation for a large body in the memory budget. The code that sends or discards
        the response must call `release`. None for a small body.
      trace: The IDs of the request's trace and span. None if the request is not traced.
    """

    status: int
    body: JsonText
    content_type: bytes = JSON
    headers: Headers = ()
    code: str = "OK"
    model: str = ""
    version: int | None = None
    signature: str = ""
    memory: MemoryReservation | None = None
    error: str = ""
    trace: TraceIds = None

    def release(self) -> None:
        """Give the memory of the body back to the memory budget."""
        if self.memory is not None:
            self.memory.release()


AnySyncResponse: TypeAlias = Response | asyncio.Future[Response] | None
"""The response to a request, or its future. None if the application must answer the request."""
SyncHandler: TypeAlias = Callable[[Headers, bytes, Peer], AnySyncResponse]
"""A function that handles a request within the event loop, given its headers, body and client."""
SyncHandlerLookup: TypeAlias = Callable[[bytes, Headers], SyncHandler | None]
"""A function that returns the handler of a POST request, given its URL and headers."""


def not_found() -> Response:
    """Return a response with status 404 and TensorFlow Serving's HTML page for unknown paths."""
    return Response(404, _NOT_FOUND, HTML)


async def send_response(send: Send, response: Response) -> None:
    """Send a whole response through ASGI, and then release its memory.

    If the client reads slowly, the coroutine waits.
    """
    try:
        await _send(send, response)
    finally:
        response.release()


async def _send(send: Send, response: Response) -> None:
    headers = [
        (b"content-type", response.content_type),
        (b"content-length", b"%d" % len(response.body)),
        *response.headers,
    ]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    if len(response.body) <= _CHUNK_BYTES:
        await send({"type": "http.response.body", "body": bytes(response.body)})
        return
    for chunk, is_last in _split(response.body):
        await send({"type": "http.response.body", "body": chunk, "more_body": not is_last})


def _split(body: JsonText) -> Iterator[tuple[bytes, bool]]:
    view = memoryview(body)
    for start in range(0, len(view), _CHUNK_BYTES):
        end = start + _CHUNK_BYTES
        yield bytes(view[start:end]), end >= len(view)
