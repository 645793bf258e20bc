"""Parses what one read of a connection has received in several turns of the event loop."""

from collections.abc import Callable
from typing import Any

from server.frontends.rest.transport.responses import Headers, get_header
from server.frontends.rest.transport.uvicorn_compat import FlowControl, HttpToolsProtocol


class BackpressureFlowControl(FlowControl):  # type: ignore[misc]
    """Flow control that stops reading from a connection while a request is being answered.

    uvicorn's own flow control continues to read. Then a client that sends many requests and reads
    no response could fill the memory.

    Args:
      may_read: Returns whether the server may read data now. The result is False while a
        complete request waits for its response.
    """

    def __init__(self, transport: Any, may_read: Callable[[], bool]) -> None:
        super().__init__(transport)
        self._may_read = may_read
        self.has_ended = False

    def resume_reading(self) -> None:
        """Resume reading if `may_read` permits it and `end_reading` was not called."""
        if not self.has_ended and self._may_read():
            super().resume_reading()

    def end_reading(self) -> None:
        """Stop reading, and never resume: later calls of `resume_reading` have no effect."""
        self.has_ended = True
        self.pause_reading()


# The parser gets at most `_MAX_SLICE_BYTES` at once, unless all belong to a body of known length.
# It gets fewer bytes after a slice with many parts.
_MIN_SLICE_BYTES, _MAX_SLICE_BYTES = 2 << 10, 8 << 10
# After this number of parts of bodies in a turn of the event loop, other connections are served.
_MAX_PARTS_PER_TURN = 256
PARTS_PER_REQUEST = 16
"""How many parts of a body take as long to parse as the head of a request."""


class SlicedProtocol(HttpToolsProtocol):  # type: ignore[misc]
    """uvicorn's HTTP protocol, which parses many small chunks of a body in several turns.

    The parser calls back for each chunk. Without turns, a read of 256 KiB with chunks of one byte
    would delay all other connections by a tenth of a second.
    """

    flow: BackpressureFlowControl

    def connection_made(self, transport: Any) -> None:
        """Prepare for the data of a new connection."""
        super().connection_made(transport)
        # The number of bytes since the last byte of a body: of a head, of trailers or of chunk
        # extensions.
        self._head_bytes = 0
        self._is_in_head = True
        self._num_body_bytes = self._num_parts = 0
        self._request_headers: Headers = ()
        # Received bytes that the parser gets in a later turn of the event loop.
        self._unparsed = b""

    def parse_slices(self, data: bytes) -> None:
        """Parse data, a part of them in later turns if they have many parts of bodies."""
        if len(data) > _MAX_SLICE_BYTES or self._unparsed:
            self._unparsed += data
            self._parse_in_turns()
        else:
            self.parse_slice(data)

    def parse_slice(self, data: bytes) -> None:
        """Pass data to the parser at once."""
        self._head_bytes += len(data)
        super().data_received(data)

    def _parse_in_turns(self) -> None:
        """Parse received data until it has many parts; leave the rest to the next turn."""
        data, self._unparsed = self._unparsed, b""
        self._num_parts = start = 0
        size = _MIN_SLICE_BYTES
        while start < len(data) and not (self.flow.has_ended or self.transport.is_closing()):
            if self._num_parts > _MAX_PARTS_PER_TURN:
                self._unparsed = data[start:]
                self.flow.pause_reading()
                self.loop.call_soon(self._parse_in_turns)
                return
            end = start + max(size, self._count_missing_bytes())
            num_parts = self._num_parts
            self.parse_slice(data[start:end])
            start = end
            has_few_parts = self._num_parts - num_parts <= 2
            size = min(2 * size, _MAX_SLICE_BYTES) if has_few_parts else _MIN_SLICE_BYTES
        cycle = self.cycle
        if cycle is None or cycle.response_complete or not (cycle.more_body and cycle.body):
            # If the application has yet to take a part of the body, it resumes the reading itself.
            self.flow.resume_reading()

    def _count_missing_bytes(self) -> int:
        """Return how many bytes the body still lacks; 0 if the head does not declare its length."""
        if self._is_in_head:
            return 0
        declared = get_header(self._request_headers, b"content-length")
        return 0 if declared is None else int(declared) - self._num_body_bytes

    def on_body(self, body: bytes) -> None:
        """Pass a part of a body on. The parser calls this at least once for each chunk."""
        self._count_part(body)
        super().on_body(body)

    def _count_part(self, body: bytes) -> None:
        self._head_bytes = 0
        self._num_body_bytes += len(body)
        self._num_parts += 1
