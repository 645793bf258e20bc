"""Reads and decompresses request bodies, within limits of size and memory."""

import zlib
from collections.abc import Callable, Sequence

from starlette.types import Receive

from server.admission.memory_budget import MemoryReservation
from server.frontends.rest.transport.responses import Headers
from server.parsing.request_parser import MAX_LOCAL_BYTES
from tpuserve.errors import Cancelled, RequestTooLarge

MAX_DECOMPRESSED_BYTES = 100_000_000
"""The largest decompressed body. TensorFlow Serving treats a larger body as empty."""
# The argument `wbits` of zlib.decompressobj that selects the gzip format.
_GZIP_WINDOW = 31
_CHUNK_BYTES = 1 << 20
_SMALL_BYTES = 1 << 12


class RequestBodyReader:
    """Reads request bodies of a limited size."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.max_decompressed_bytes = min(max_bytes, MAX_DECOMPRESSED_BYTES)

    async def read(
        self, receive: Receive, declared_bytes: int | None, reservation: MemoryReservation
    ) -> list[bytes]:
        """Read a body as the client sent it.

        Args:
          declared_bytes: The value of Content-Length. None if the request has no such header.

        Returns:
          The chunks of the body. The caller joins them, in a thread if there are many chunks,
          because joining copies the body.

        Raises:
          RequestTooLarge: The body is larger than `max_bytes` or than the memory budget. The
            remaining bytes are not read.
          MemoryBudgetExceeded: All requests together need more memory than the budget has.
        """
        if declared_bytes is not None and declared_bytes > self._max_bytes:
            raise self._too_large()
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise Cancelled("the client has disconnected")
            chunk = message.get("body", b"")
            # Join small chunks: each would take many times its size in memory.
            if chunks and len(chunks[-1]) < _SMALL_BYTES:
                chunks[-1] += chunk
            else:
                chunks.append(chunk)
            size += len(chunk)
            reservation.grow(len(chunk))
            if size > self._max_bytes:
                raise self._too_large()
            if not message.get("more_body"):
                return chunks

    def gunzip_small(self, chunks: Sequence[bytes]) -> bytes | None:
        """Decompress a small body with gzip, as `gunzip` does; return None for a larger body.

        Takes less than a millisecond, so that the event loop may call it.
        """
        if len(chunks) > 1 or len(chunks[0]) > MAX_LOCAL_BYTES:
            return None
        limit = min(MAX_LOCAL_BYTES, self.max_decompressed_bytes)
        decompressor = zlib.decompressobj(_GZIP_WINDOW)
        try:
            body = decompressor.decompress(chunks[0], limit + 1)
        except zlib.error:
            return b""
        if len(body) > limit or decompressor.unconsumed_tail:
            return None
        return body if decompressor.eof else b""

    def _too_large(self) -> RequestTooLarge:
        return RequestTooLarge(
            f"the request's body has more than {self._max_bytes} bytes (--max_request_bytes). "
            f"Send less at a time."
        )


def join_chunks(chunks: Sequence[bytes], reservation: MemoryReservation) -> bytes:
    """Join the chunks of a body, after reserving memory for the copy.

    Raises:
      MemoryBudgetExceeded: All requests together need more memory than the budget has.
    """
    if len(chunks) == 1:
        return chunks[0]
    size = sum(map(len, chunks))
    reservation.grow(size)
    body = b"".join(chunks)
    reservation.shrink(size)
    return body


def gunzip(
    body: bytes,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
    reserve: Callable[[int], None] = lambda size: None,
    check: Callable[[], None] = lambda: None,
) -> bytes:
    """Decompress a body with gzip; treat an invalid body as empty.

    TensorFlow Serving does so too. Source: tensorflow_serving/util/net_http.

    Args:
      max_bytes: The largest size of the decompressed body in bytes. Decompression stops beyond this
        size.
      reserve: A function that reserves a number of bytes in the memory budget.
      check: A function that is called before each chunk is decompressed. An exception from it ends
        the decompression.
    """
    decompressor = zlib.decompressobj(_GZIP_WINDOW)
    chunks: list[bytes] = []
    size = 0
    try:
        while not decompressor.eof:
            check()
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
    """Return the size and the compression of a body, as the headers of the request declare them.

    Returns:
      The Content-Length in bytes, or None if there is no such header; and whether the body is
      compressed with gzip.
    """
    length: int | None = None
    is_gzip = False
    for name, value in headers:
        if name == b"content-length":
            length = int(value)
        elif name == b"content-encoding":
            is_gzip = b"gzip" in value
    return length, is_gzip
