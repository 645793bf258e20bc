"""The bodies of requests, read and inflated within bounds."""

import zlib
from collections.abc import Iterable

from starlette.types import Receive

from server.rest.replies import Header
from tpuserve.errors import Cancelled, RequestTooLarge, TooManyRequests

# What TensorFlow Serving inflates at most; beyond it, a body is empty.
MAX_INFLATED_BYTES = 100_000_000
_GZIP_WINDOW = 31
_PIECE = 1 << 20


class Bodies:
    """Reads bodies, none larger than one bound and all at a time within another."""

    def __init__(self, max_bytes: int, max_bytes_in_all: int | None = None) -> None:
        """Takes the bounds; that of all bodies is four of the largest unless it is given."""
        self._max_bytes = max_bytes
        self._max_in_all = max_bytes_in_all or 4 * max_bytes
        self._held = 0

    async def read(self, receive: Receive, declared_bytes: int | None) -> bytes:
        """A body as it was sent.

        Args:
          declared_bytes: what its Content-Length says, if it has one.

        Raises:
          RequestTooLarge: it is larger than one may be; the rest of it is not read.
          TooManyRequests: there is no room for it beside those that others are sending.
          Cancelled: the client has gone.
        """
        if declared_bytes is not None and declared_bytes > self._max_bytes:
            raise self._too_large()
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            body: bytes = message.get("body", b"")
            if len(body) > self._max_bytes:
                raise self._too_large()
            return body
        pieces: list[bytes] = []
        size = 0
        try:
            while True:
                if message["type"] != "http.request":
                    raise Cancelled("the client has gone")
                piece = message.get("body", b"")
                pieces.append(piece)
                size += len(piece)
                self._held += len(piece)
                if size > self._max_bytes:
                    raise self._too_large()
                if self._held > self._max_in_all:
                    raise TooManyRequests(
                        "the bodies of requests under way are larger than the server holds at a "
                        "time. Send the request again later."
                    )
                if not message.get("more_body"):
                    return b"".join(pieces)
                message = await receive()
        finally:
            self._held -= size

    def _too_large(self) -> RequestTooLarge:
        return RequestTooLarge(
            f"the request's body has more than {self._max_bytes} bytes (--max_request_bytes). "
            f"Send less at a time."
        )


def inflate(body: bytes, max_bytes: int = MAX_INFLATED_BYTES) -> bytes:
    """What a gzip body holds; empty where it is no gzip, cut short, or larger than it may be.

    No more is inflated than that. Source: tensorflow_serving/util/net_http, which treats such a
    body as an empty one.
    """
    inflater = zlib.decompressobj(_GZIP_WINDOW)
    pieces: list[bytes] = []
    size = 0
    try:
        while not inflater.eof:
            piece = inflater.decompress(body, min(_PIECE, max_bytes - size + 1))
            body = inflater.unconsumed_tail
            size += len(piece)
            if size > max_bytes or not (piece or body):
                return b""
            pieces.append(piece)
    except zlib.error:
        return b""
    return b"".join(pieces)


def content(headers: Iterable[Header]) -> tuple[int | None, bool]:
    """What the headers say of a body: its length, and whether it is gzip."""
    length: int | None = None
    is_gzip = False
    for name, value in headers:
        if name == b"content-length":
            length = int(value)
        elif name == b"content-encoding":
            is_gzip = b"gzip" in value
    return length, is_gzip
