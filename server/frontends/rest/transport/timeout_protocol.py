"""An HTTP connection that is closed if its client is too slow."""

import contextlib
import logging
import sys
import time
from collections.abc import Iterable, MutableMapping
from typing import TYPE_CHECKING, Any

from server.frontends.rest.transport.flow_control import BackpressureFlowControl
from server.frontends.rest.transport.headers import Header
from server.frontends.rest.transport.tcp_state import ClientState, read_client_state
from server.frontends.rest.transport.timeouts import ConnectionTimeouts
from server.frontends.rest.transport.uvicorn_compat import HttpToolsProtocol, httptools

if TYPE_CHECKING:
    _LoggerAdapter = logging.LoggerAdapter[logging.Logger]
else:
    # Python 3.10 raises an error for a LoggerAdapter with a type argument.
    _LoggerAdapter = logging.LoggerAdapter

# The headers that tell where the body of a request ends.
_FRAMING_HEADERS = (b"content-length", b"transfer-encoding")
# The text with which uvicorn answers an invalid request.
_INVALID_REQUEST = "Invalid HTTP request received."
_INTERIM_RESPONSE = b"HTTP/1.1 100 Continue\r\n\r\n"
# How long to wait for a client's operating system to reject an interim response, in seconds; see
# `TimeoutProtocol._has_client_left`.
_PROBE_SECONDS = 0.2


async def _refuse(scope: Any, receive: Any, send: Any) -> None:
    """Answer with status 400, in place of the ASGI application, for a malformed request."""
    body = _INVALID_REQUEST.encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class _ConnectionLogger(_LoggerAdapter):
    """A logger whose messages begin with the address of a connection's client."""

    @property
    def level(self) -> int:
        """The level of the logger, which uvicorn reads."""
        return self.logger.level

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the address to a message."""
        client = (self.extra or {}).get("client")
        return (f"{client[0]}:{client[1]} - {msg}" if isinstance(client, tuple) else msg), kwargs


class TimeoutProtocol(HttpToolsProtocol):  # type: ignore[misc]
    """uvicorn's HTTP protocol with timeouts for slow clients.

    A request for a protocol upgrade, such as HTTP/2, is answered as HTTP/1.1.
    """

    timeouts = ConnectionTimeouts()
    flow: BackpressureFlowControl
    logger: Any
    headers: list[Header]

    def connection_made(self, transport: Any) -> None:
        """Begin to check the timeouts of a new connection."""
        super().connection_made(transport)
        self.flow = BackpressureFlowControl(transport, self._may_read_next_request)
        self._last_received = self._request_started = time.monotonic()
        self._head_bytes = 0
        self._unsent_bytes = 0
        self._is_in_head = True
        self._is_client_probed = False
        # Name the client in uvicorn's log lines, such as "Invalid HTTP request received."
        self.logger = _ConnectionLogger(self.logger, {"client": self.client})
        # Whether the connection waits for the next request after a response that `FastPathProtocol`
        # has sent without uvicorn: no byte of the next request has arrived.
        self._is_idle = False
        # The offset in the received data at which the head of a request for a protocol upgrade
        # ends; None if the data contains no such request.
        self._upgrade_offset: int | None = None
        self._is_replaying_head = False
        self._framing_headers: list[Header] = []
        self._timer = self.loop.call_later(self._check_interval, self._check_timeouts)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop checking the timeouts of the connection."""
        self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data from the client. Refuse a request whose head is too large."""
        if self.flow.has_ended:
            return
        self._last_received = time.monotonic()
        self._is_idle = False
        if self._is_in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        while self._upgrade_offset is not None and not self.transport.is_closing():
            data, self._upgrade_offset = data[self._upgrade_offset :], None
            self._continue_without_upgrade(data)
        if self._is_in_head and self._head_bytes > self.timeouts.max_header_bytes:
            if self.cycle is not None and not self.cycle.response_complete:
                self.send_400_response(_INVALID_REQUEST)
            else:
                self._abort()

    def on_message_begin(self) -> None:
        """Start the timeouts of a request. The parser calls this at each request's start."""
        if self._is_replaying_head:
            return
        self._start_request()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Apply the timeouts of the body from now on. The parser calls this after the headers."""
        if self._is_replaying_head:
            return
        self._is_in_head = False
        self._remember_framing(self.headers)
        super().on_headers_complete()
        # Replace the list of headers, so that the trailers of a chunked body do not extend the old
        # list, which the application holds.
        self.headers = []

    def on_message_complete(self) -> None:
        """Pause reading until the request is answered. The parser calls this at a request's end."""
        if self.parser.should_upgrade():
            # Ignore this call: the request is not complete. If a request asks for a protocol
            # upgrade, the parser takes the body for data of the new protocol, and so reports the
            # end of the request too early.
            return
        super().on_message_complete()
        if not self._may_read_next_request():
            self.flow.pause_reading()
        self._is_in_head = True
        self._head_bytes = 0
        self._request_started = self._last_received

    def _may_read_next_request(self) -> bool:
        # uvicorn's `cycle` is the latest request. If `pipeline` queues no request, `cycle` is the
        # request that is being answered.
        cycle = self.cycle
        if self.pipeline:
            return False
        return cycle is None or cycle.more_body or cycle.response_complete

    def _remember_framing(self, headers: Iterable[Header]) -> None:
        if self.parser.should_upgrade():
            self._framing_headers = [header for header in headers if header[0] in _FRAMING_HEADERS]

    def _unsupported_upgrade_warning(self) -> None:
        # uvicorn calls this method when the parser stops at a request for an upgrade. Keep the
        # offset at which to go on. Log no warning, because some clients offer HTTP/2 with every
        # request.
        error = sys.exc_info()[1]
        assert isinstance(error, httptools.HttpParserUpgrade)
        self._upgrade_offset = error.args[0]

    def _continue_without_upgrade(self, data: bytes) -> None:
        """Parse the rest of a request as if the request had not asked for a protocol upgrade."""
        self.parser = httptools.HttpRequestParser(self)
        with contextlib.suppress(AttributeError):
            # Set the same parser option as HttpToolsProtocol.__init__ does, if httptools has the
            # option: old releases do not.
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        lines = [b"%s: %s\r\n" % header for header in self._framing_headers]
        self._is_replaying_head = True
        try:
            self.parser.feed_data(b"POST / HTTP/1.1\r\n%s\r\n" % b"".join(lines))
        except httptools.HttpParserError:
            self.send_400_response(_INVALID_REQUEST)
            return
        finally:
            self._is_replaying_head = False
        if data:
            super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """Refuse invalid data, and close the connection once earlier requests are answered."""
        self.flow.end_reading()
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            super().send_400_response(msg)
        elif not cycle.more_body:
            # The invalid data follows a complete request that is being answered. Close the
            # connection after the response to that request, without a response to the invalid data.
            cycle.keep_alive = False
        elif self.pipeline:
            # Let `_refuse` answer the incomplete request, which is the latest request and so at
            # index 0 of the queue.
            self.pipeline[0] = (cycle, _refuse)
        else:
            # Tell the application that the client has left, so that it stops answering the
            # incomplete request, whose body is invalid.
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                self.transport.close()
            else:
                super().send_400_response(msg)

    def _start_request(self) -> None:
        self._is_client_probed = False
        self._request_started = self._last_received
        self._is_idle = False

    def _await_next_request(self) -> None:
        # uvicorn starts no keep-alive timer after a response that was sent without uvicorn. Mark
        # the connection as idle, so that `_check_timeouts` applies the keep-alive timeout.
        self._is_in_head = True
        self._head_bytes = 0
        self._is_idle = True

    @property
    def _check_interval(self) -> float:
        timeouts = self.timeouts
        shortest = min(timeouts.headers_seconds, timeouts.idle_seconds, self.timeout_keep_alive)
        return float(shortest) / 4

    def _check_timeouts(self) -> None:
        # Check the timeouts of the connection periodically: one timer for each request would cost
        # more time.
        if self._is_request_answered_late() and self._has_client_left():
            self._abort()
            return
        now = time.monotonic()
        unsent_bytes = self.transport.get_write_buffer_size()
        is_client_stuck = bool(unsent_bytes) and unsent_bytes == self._unsent_bytes
        self._unsent_bytes = unsent_bytes
        keep_alive = self.timeout_keep_alive
        if self._is_overdue(now, is_client_stuck):
            self._abort()
        elif self._is_idle and now - self._last_received > keep_alive and not unsent_bytes:
            self.transport.close()
        else:
            self._timer = self.loop.call_later(self._check_interval, self._check_timeouts)

    def _is_request_answered_late(self) -> bool:
        # Do not measure how late the answer is. True for an answer that is not late does no harm:
        # the server then only checks, now and then, whether the client has left.
        cycle = self.cycle
        return cycle is not None and not cycle.more_body and not cycle.response_started

    def _has_client_left(self) -> bool:
        """Return whether the client has closed the connection before the response.

        A client that has closed only its sending side still gets the response. To tell the two
        cases apart, the server sends an interim response. If the client has closed the connection,
        its operating system rejects the interim response; otherwise the client ignores it, as
        HTTP/1.1 requires.
        """
        state = read_client_state(self.transport)
        if state is not ClientState.SENDS_NO_MORE:
            return state is ClientState.GONE
        if not self._is_client_probed and self.parser.get_http_version() == "1.1":
            self._is_client_probed = True
            self.transport.write(_INTERIM_RESPONSE)
            self.loop.call_later(_PROBE_SECONDS, self._abort_if_client_left)
        return False

    def _abort_if_client_left(self) -> None:
        is_open = not self.transport.is_closing()
        if is_open and self._is_request_answered_late() and self._has_client_left():
            self._abort()

    def _is_overdue(self, now: float, is_client_stuck: bool) -> bool:
        if is_client_stuck:
            return now - self._last_received > self.timeouts.idle_seconds
        if not self._is_in_head:
            return (
                now - self._last_received > self.timeouts.idle_seconds
                and not self.flow.read_paused
                or now - self._request_started > self.timeouts.body_seconds
            )
        # While a complete request is answered, apply no timeout for slow clients: the time limit
        # for requests (`RestConfig.timeout_ms`) applies.
        if self.cycle is not None and not self.cycle.response_complete:
            return False
        # Between two requests, the keep-alive timeout applies instead of the timeout for the head.
        is_kept_alive = self._is_idle or self.timeout_keep_alive_task is not None
        return now - self._request_started > self.timeouts.headers_seconds and not is_kept_alive

    def _abort(self) -> None:
        if self.cycle is not None:
            # Tell the application that the client has left, because no further bytes can be sent.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.abort()
