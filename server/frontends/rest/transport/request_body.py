"""Reads and decompresses request bodies, and limits the memory that they use."""

import threading
import zlib
from collections.abc import Callable

from starlette.types import Receive

from server.frontends.rest.transport.headers import Headers
from tpuserve.errors import Cancelled, RequestTooLarge, TooManyRequests

MAX_DECOMPRESSED_BYTES = 100_000_000
"""The largest decompressed body. TensorFlow Serving treats a larger body as empty."""
# The value of the argument `wbits` of zlib.decompressobj that selects the gzip format.
_GZIP_WINDOW = 31
_CHUNK_BYTES = 1 << 20


class RequestBodyReader:
    """Reads request bodies, and limits the size of each body and of all bodies together.

    Both limits apply to the bytes as received and to the decompressed bytes. The bytes count
    towards the total from their arrival until the request is answered.
    """

    def __init__(self, max_bytes: int, max_total_bytes: int | None = None) -> None:
        """Create a reader that has read no body yet.

        Args:
          max_bytes: The largest size of one body.
          max_total_bytes: The largest total size of the bodies of all requests in flight. None
            means four times `max_bytes`.
        """
        self._max_bytes = max_bytes
        self.max_decompressed_bytes = min(max_bytes, MAX_DECOMPRESSED_BYTES)
        self._max_total_bytes = max_total_bytes or 4 * max_bytes
        self._reserved_bytes = 0
        self._lock = threading.Lock()

    def reserve(self) -> "MemoryReservation":
        """Return an empty reservation for one request."""
        return MemoryReservation(self)

    async def read(
        self, receive: Receive, declared_bytes: int | None, reservation: "MemoryReservation"
    ) -> bytes:
        """Read a body as the client sent it.

        Args:
          receive: The ASGI channel of the request.
          declared_bytes: The value of Content-Length. None if the request has no such header.
          reservation: The reservation of the request, which this method grows by the size of the
            body.

        Raises:
          RequestTooLarge: The body is larger than the bound. The remaining bytes are not read.
          TooManyRequests: The bodies of all requests together exceed `max_total_bytes`.
          Cancelled: The client has disconnected.
        """
        if declared_bytes is not None and declared_bytes > self._max_bytes:
            raise self._too_large()
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            body: bytes = message.get("body", b"")
            if len(body) > self._max_bytes:
                raise self._too_large()
            reservation.grow(len(body))
            return body
        chunks: list[bytes] = []
        size = 0
        while True:
            if message["type"] != "http.request":
                raise Cancelled("the client has disconnected")
            chunk = message.get("body", b"")
            chunks.append(chunk)
            size += len(chunk)
            reservation.grow(len(chunk))
            if size > self._max_bytes:
                raise self._too_large()
            if not message.get("more_body"):
                return b"".join(chunks)
            message = await receive()

    def gunzip(self, body: bytes, reservation: "MemoryReservation") -> bytes:
        """Decompress a gzip body; see the function `gunzip`.

        Raises:
          TooManyRequests: The bodies of all requests together exceed `max_total_bytes`.
        """
        return gunzip(body, self.max_decompressed_bytes, reservation.grow)

    def acquire(self, size: int) -> None:
        """Reserve `size` bytes of the memory for request bodies.

        Raises:
          TooManyRequests: The reserved bytes of all requests together would exceed the bound.
        """
        with self._lock:
            self._reserved_bytes += size
            if self._reserved_bytes <= self._max_total_bytes:
                return
            self._reserved_bytes -= size
        raise TooManyRequests(
            f"the bodies of the requests in flight exceed {self._max_total_bytes} bytes. Send the "
            f"request again later."
        )

    def release(self, size: int) -> None:
        """Give back `size` bytes that `acquire` has reserved."""
        with self._lock:
            self._reserved_bytes -= size

    def _too_large(self) -> RequestTooLarge:
        return RequestTooLarge(
            f"the request's body has more than {self._max_bytes} bytes (--max_request_bytes). "
            f"Send less at a time."
        )


class MemoryReservation:
    """The bytes that one request has reserved of the memory for request bodies."""

    __slots__ = ("_reader", "_size")

    def __init__(self, reader: RequestBodyReader) -> None:
        """Create a reservation of 0 bytes."""
        self._reader = reader
        self._size = 0

    def grow(self, size: int) -> None:
        """Reserve `size` more bytes.

        Raises:
          TooManyRequests: The bodies of all requests together exceed `max_total_bytes`.
        """
        self._reader.acquire(size)
        self._size += size

    def release(self) -> None:
        """Give back all reserved bytes. Further calls have no effect."""
        if self._size:
            self._reader.release(self._size)
            self._size = 0


def gunzip(
    body: bytes,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
    reserve: Callable[[int], None] = lambda size: None,
) -> bytes:
    """Decompress a gzip body.

    Source: tensorflow_serving/util/net_http, which treats an invalid body as empty.

    Args:
      body: The compressed body.
      max_bytes: The largest size of the decompressed body. Decompression stops beyond this size.
      reserve: A function that reserves memory. It is called with the size of each decompressed
        chunk, and once more with the total size, since joining the chunks copies them. An exception
        from it ends the decompression.

    Returns:
      The decompressed body. Empty if the body is not gzip, is incomplete, or exceeds `max_bytes`.
    """
    decompressor = zlib.decompressobj(_GZIP_WINDOW)
    chunks: list[bytes] = []
    size = 0
    try:
        while not decompressor.eof:
            chunk = decompressor.decompress(body, min(_CHUNK_BYTES, max_bytes - size + 1))
            body = decompressor.unconsumed_tail
            size += len(chunk)
            if size > max_bytes or not (chunk or body):
                return b""
            reserve(len(chunk))
            chunks.append(chunk)
    except zlib.error:
        return b""
    if len(chunks) > 1:
        reserve(size)
    return b"".join(chunks)


def parse_body_headers(headers: Headers) -> tuple[int | None, bool]:
    """Return a body's Content-Length, or None without the header, and whether the body is gzip."""
    length: int | None = None
    is_gzip = False
    for name, value in headers:
        if name == b"content-length":
            length = int(value)
        elif name == b"content-encoding":
            is_gzip = b"gzip" in value
    return length, is_gzip
