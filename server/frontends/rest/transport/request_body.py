"""The bodies of requests, read and inflated within bounds."""

import threading
import zlib
from collections.abc import Callable, Iterable
from types import TracebackType

from starlette.types import Receive

from server.frontends.rest.transport.responses import Header
from tpuserve.errors import Cancelled, RequestTooLarge, TooManyRequests

# What TensorFlow Serving inflates at most; beyond it, a body is empty.
MAX_INFLATED_BYTES = 100_000_000
_GZIP_WINDOW = 31
_PIECE = 1 << 20


class RequestBodyReader:
    """Reads bodies, none larger than one bound and all at a time within another.

    What counts is held from the first byte until the request is answered, inflated bytes too.
    """

    def __init__(self, max_bytes: int, max_bytes_in_all: int | None = None) -> None:
        """Takes the bounds; that of all bodies is four of the largest unless it is given."""
        self._max_bytes = max_bytes
        self.max_inflated_bytes = min(max_bytes, MAX_INFLATED_BYTES)
        self._max_in_all = max_bytes_in_all or 4 * max_bytes
        self._held = 0
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        """What all bodies at the moment hold."""
        return self._held

    def room(self) -> "MemoryReservation":
        """The room of one request, free again at the end of its block."""
        return MemoryReservation(self)

    async def read(
        self, receive: Receive, declared_bytes: int | None, room: "MemoryReservation"
    ) -> bytes:
        """A body as it was sent.

        Args:
          declared_bytes: what its Content-Length says, if it has one.

        Raises:
          RequestTooLarge: it is larger than one may be; the rest of it is not read.
          TooManyRequests: there is no room for it beside those of others.
          Cancelled: the client has gone.
        """
        if declared_bytes is not None and declared_bytes > self._max_bytes:
            raise self._too_large()
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            body: bytes = message.get("body", b"")
            if len(body) > self._max_bytes:
                raise self._too_large()
            room.take(len(body))
            return body
        pieces: list[bytes] = []
        size = 0
        while True:
            if message["type"] != "http.request":
                raise Cancelled("the client has gone")
            piece = message.get("body", b"")
            pieces.append(piece)
            size += len(piece)
            room.take(len(piece))
            if size > self._max_bytes:
                raise self._too_large()
            if not message.get("more_body"):
                return b"".join(pieces)
            message = await receive()

    def gunzip(self, body: bytes, room: "MemoryReservation") -> bytes:
        """What a gzip body holds; see `gunzip`.

        Raises:
          TooManyRequests: there is no room for it beside those of others.
        """
        return gunzip(body, self.max_inflated_bytes, room.take)

    def take(self, size: int) -> None:
        """Counts some bytes; TooManyRequests where there is no room for them."""
        with self._lock:
            self._held += size
            if self._held <= self._max_in_all:
                return
            self._held -= size
        raise TooManyRequests(
            "the bodies of requests under way are larger than the server holds at a time. Send "
            "the request again later."
        )

    def give_back(self, size: int) -> None:
        """Forgets some bytes."""
        with self._lock:
            self._held -= size

    def _too_large(self) -> RequestTooLarge:
        return RequestTooLarge(
            f"the request's body has more than {self._max_bytes} bytes (--max_request_bytes). "
            f"Send less at a time."
        )


class MemoryReservation:
    """The bytes that one request holds; a block, or ended by `free`."""

    __slots__ = ("_bodies", "_size")

    def __init__(self, bodies: RequestBodyReader) -> None:
        self._bodies = bodies
        self._size = 0

    def take(self, size: int) -> None:
        """Takes more room; TooManyRequests where there is none."""
        self._bodies.take(size)
        self._size += size

    def free(self) -> None:
        """Gives all of it back."""
        if self._size:
            self._bodies.give_back(self._size)
            self._size = 0

    def __enter__(self) -> "MemoryReservation":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.free()


def gunzip(
    body: bytes,
    max_bytes: int = MAX_INFLATED_BYTES,
    take: Callable[[int], None] = lambda size: None,
) -> bytes:
    """What a gzip body holds; empty where it is no gzip, cut short, or larger than it may be.

    No more is inflated than that. Source: tensorflow_serving/util/net_http, which treats such a
    body as an empty one.

    Args:
      take: called with the size of each piece before it is kept, and once more with all of it:
        to join the pieces takes as much again. What it raises ends the work.
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
            take(len(piece))
            pieces.append(piece)
    except zlib.error:
        return b""
    if len(pieces) > 1:
        take(size)
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
