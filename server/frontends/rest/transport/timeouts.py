"""How long a client may take: without a bound, slow ones would fill a server with connections."""

import contextlib
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from server.frontends.rest.transport.flow_control import BackpressureFlowControl

# What says where a request ends.
_FRAMING = (b"content-length", b"transfer-encoding")
# In uvicorn's words.
_INVALID = "Invalid HTTP request received."


@dataclass(frozen=True)
class ConnectionTimeouts:
    """Bounds for one connection.

    Attributes:
      headers_seconds: for a request's head, from its first byte or from the connection on.
      idle_seconds: between two pieces of a body, or of a reply that the client takes.
      body_seconds: for a whole body.
      max_header_bytes: of a request's head.
    """

    headers_seconds: float = 20
    idle_seconds: float = 20
    body_seconds: float = 600
    max_header_bytes: int = 64 << 10


async def _refuse(scope: Any, receive: Any, send: Any) -> None:
    body = _INVALID.encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class TimeoutProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol that hangs up on clients who take too long."""

    timeouts = ConnectionTimeouts()
    flow: BackpressureFlowControl

    def connection_made(self, transport: Any) -> None:
        """Begins to wait for a request."""
        super().connection_made(transport)
        self.flow = BackpressureFlowControl(transport, self._is_time_to_read)
        self._heard = self._began = time.monotonic()
        self._head_bytes = 0
        self._unsent = 0
        self._is_in_head = True
        self._is_idle = False
        # Where a head has ended that asks for another protocol than HTTP/1.1.
        self._wish_end: int | None = None
        self._is_told_again = False
        self._framing: list[tuple[bytes, bytes]] = []
        self._check = self.loop.call_later(self._interval, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends all waiting."""
        self._check.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Takes in what the client has sent."""
        if self.flow.is_over:
            return
        self._heard = time.monotonic()
        self._is_idle = False
        if self._is_in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        while self._wish_end is not None and not self.transport.is_closing():
            data, self._wish_end = data[self._wish_end :], None
            self._go_on(data)
        if self._is_in_head and self._head_bytes > self.timeouts.max_header_bytes:
            if self.cycle is not None and not self.cycle.response_complete:
                self.send_400_response(_INVALID)
            else:
                self._hang_up()

    def on_message_begin(self) -> None:
        """A request's first byte has come."""
        if self._is_told_again:
            return
        self._begin()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """A request's head has come."""
        if self._is_told_again:
            return
        self._is_in_head = False
        self._note_framing(self.headers)
        super().on_headers_complete()
        # What comes behind the body are no headers, and the application has these.
        self.headers = []

    def on_message_complete(self) -> None:
        """A request has come, whole."""
        if self.parser.should_upgrade():
            # Its body has not come yet: to the parser that is of another protocol.
            return
        super().on_message_complete()
        if not self._is_time_to_read():
            self.flow.pause_reading()
        self._is_in_head = True
        self._head_bytes = 0
        self._began = self._heard

    def _is_time_to_read(self) -> bool:
        # The latest request is the one that is being answered where none waits for its turn.
        cycle = self.cycle
        if self.pipeline:
            return False
        return cycle is None or cycle.more_body or cycle.response_complete

    def _note_framing(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        if self.parser.should_upgrade():
            self._framing = [each for each in headers if each[0] in _FRAMING]

    def _unsupported_upgrade_warning(self) -> None:
        # Called where the parser stops; some clients ask for HTTP/2 with every request.
        error = sys.exc_info()[1]
        assert isinstance(error, httptools.HttpParserUpgrade)
        self._wish_end = error.args[0]

    def _go_on(self, data: bytes) -> None:
        """Takes in what follows a head that asks for another protocol, as if it did not."""
        self.parser = httptools.HttpRequestParser(self)
        with contextlib.suppress(AttributeError):
            # As uvicorn does it.
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        lines = [b"%s: %s\r\n" % each for each in self._framing]
        self._is_told_again = True
        try:
            self.parser.feed_data(b"POST / HTTP/1.1\r\n%s\r\n" % b"".join(lines))
        except httptools.HttpParserError:
            self.send_400_response(_INVALID)
            return
        finally:
            self._is_told_again = False
        if data:
            super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """Refuses what is no request: after the answers to those before it, and ends with it."""
        self.flow.end_reading()
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            super().send_400_response(msg)
        elif not cycle.more_body:
            # What has come before is whole, and its answer is the last one.
            cycle.keep_alive = False
        elif self.pipeline:
            # Of those that wait for their turn the latest comes first.
            self.pipeline[0] = (cycle, _refuse)
        else:
            # Who is at it is to answer no more.
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                self.transport.close()
            else:
                super().send_400_response(msg)

    def _begin(self) -> None:
        self._began = self._heard
        self._is_idle = False

    def _await_request(self) -> None:
        # After one that was answered without uvicorn, which would begin to look at the time.
        self._is_in_head = True
        self._head_bytes = 0
        self._is_idle = True

    @property
    def _interval(self) -> float:
        timeouts = self.timeouts
        shortest = min(timeouts.headers_seconds, timeouts.idle_seconds, self.timeout_keep_alive)
        return float(shortest) / 4

    def _look(self) -> None:
        # Once in a while, so that requests that come as they should cost nothing.
        now = time.monotonic()
        if self._is_overdue(now):
            self._hang_up()
        elif self._is_idle and now - self._heard > self.timeout_keep_alive and not self._unsent:
            self.transport.close()
        else:
            self._check = self.loop.call_later(self._interval, self._look)

    def _is_overdue(self, now: float) -> bool:
        unsent = self.transport.get_write_buffer_size()
        is_stuck, self._unsent = bool(unsent) and unsent == self._unsent, unsent
        if is_stuck:
            return now - self._heard > self.timeouts.idle_seconds
        if not self._is_in_head:
            return (
                now - self._heard > self.timeouts.idle_seconds
                and not self.flow.read_paused
                or now - self._began > self.timeouts.body_seconds
            )
        # A whole request has come: its answer may take as long as it does.
        if self.cycle is not None and not self.cycle.response_complete:
            return False
        return now - self._began > self.timeouts.headers_seconds and not self._is_kept_alive()

    def _is_kept_alive(self) -> bool:
        # Between two requests uvicorn itself hangs up, after one that it has seen.
        return self._is_idle or self.timeout_keep_alive_task is not None

    def _hang_up(self) -> None:
        if self.cycle is not None:
            # Who is at it is to send nothing any more.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.abort()
