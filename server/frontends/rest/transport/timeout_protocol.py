"""The HTTP protocol of a connection that the server closes if the client is too slow."""

import contextlib
import logging
import socket
import sys
import time
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from server.admission.admission import UNREAD_RESPONSE_SECONDS, network_of_host
from server.frontends.rest.transport.connection_limit import ConnectionLimit
from server.frontends.rest.transport.responses import Header
from server.frontends.rest.transport.sliced_protocol import (
    PARTS_PER_REQUEST,
    BackpressureFlowControl,
    SlicedProtocol,
)
from server.frontends.rest.transport.uvicorn_compat import HttpToolsProtocol, httptools


@dataclass(frozen=True)
class ConnectionTimeouts:
    """The timeouts of a connection, and the size limit for the head of each request.

    Attributes:
      idle_seconds: The longest time in which no byte of a request body arrives, or in which the
        client reads no byte of a response.
      body_seconds: The longest time until a request body has arrived completely, measured from the
        first byte of the request.
    """

    headers_seconds: float = 20
    idle_seconds: float = UNREAD_RESPONSE_SECONDS
    body_seconds: float = 600
    max_header_bytes: int = 64 << 10


# Numbers of TCP connection states in Linux. Source: include/net/tcp_states.h.
_CLOSE, _CLOSE_WAIT = 7, 8


class ClientState(Enum):
    """The state of the client of a TCP connection: whether it still sends and receives bytes."""

    CONNECTED = "may send and receive"
    SENDS_NO_MORE = "sends no more bytes, and may still receive"
    GONE = "neither sends nor receives"


def read_client_state(transport: Any) -> ClientState:
    """Return the state of the client of an asyncio transport; CONNECTED if the state is unknown.

    The state comes from the operating system, because asyncio does not notice a disconnect while
    reading is paused.
    """
    pseudo_socket = transport.get_extra_info("socket")
    if pseudo_socket is None or sys.platform != "linux":
        return ClientState.CONNECTED
    try:
        # Create a second socket object for the connection, because uvloop's object lacks
        # getsockopt.
        connection = socket.socket(fileno=pseudo_socket.fileno())
    except OSError:
        return ClientState.GONE
    try:
        # Read the state, which is the first byte of the struct tcp_info.
        state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    except OSError:
        return ClientState.CONNECTED
    finally:
        connection.detach()
    if state == _CLOSE_WAIT:
        return ClientState.SENDS_NO_MORE
    return ClientState.GONE if state == _CLOSE else ClientState.CONNECTED


# The names of the headers that determine where the body of a request ends.
_FRAMING_HEADERS = (b"content-length", b"transfer-encoding")
# The text with which an invalid request is answered, the same as uvicorn's.
_INVALID_REQUEST = "Invalid HTTP request received."
_INTERIM_RESPONSE = b"HTTP/1.1 100 Continue\r\n\r\n"
_TOO_MANY_CONNECTIONS = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\n"
    b"connection: close\r\n\r\n"
)
# What Python needs for a header in addition to its text: a tuple and two bytes objects.
_HEADER_OVERHEAD_BYTES = 192
# How long to wait for a client's operating system to reject an interim response, in seconds; see
# `TimeoutProtocol._has_client_left`.
_PROBE_SECONDS = 0.2


async def _refuse(scope: Any, receive: Any, send: Any) -> None:
    """Answer a malformed request with status 400. uvicorn calls this in place of the ASGI app."""
    body = _INVALID_REQUEST.encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class _ConnectionLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose messages begin with the address of the client of a connection."""

    @property
    def level(self) -> int:
        """The log level of the wrapped logger. uvicorn reads this attribute."""
        return self.logger.level

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Put the client's address before a message."""
        client = (self.extra or {}).get("client")
        return (f"{client[0]}:{client[1]} - {msg}" if isinstance(client, tuple) else msg), kwargs


class TimeoutProtocol(SlicedProtocol):
    """uvicorn's HTTP protocol with timeouts for slow clients.

    If a request asks for a protocol upgrade, such as to HTTP/2, this class ignores the upgrade, and
    answers the request with HTTP/1.1.
    """

    timeouts = ConnectionTimeouts()
    connection_limit = ConnectionLimit()
    logger: Any
    headers: list[Header]

    def connection_made(self, transport: Any) -> None:
        """Begin to check the timeouts of a new connection."""
        super().connection_made(transport)
        self.flow = BackpressureFlowControl(transport, self._may_read_next_request)
        self._last_received = self._request_started = time.monotonic()
        self._unsent_bytes = 0
        self._is_client_probed = False
        # Name the client in uvicorn's log lines, such as "Invalid HTTP request received."
        self.logger = _ConnectionLogger(self.logger, {"client": self.client})
        # Whether the connection is idle after a response that `FastPathProtocol` has sent without
        # uvicorn: no byte of the next request has arrived yet.
        self._is_idle = False
        # If a request in the received data asks for a protocol upgrade: the offset in the data at
        # which the head of the request ends. None otherwise.
        self._upgrade_offset: int | None = None
        self._is_replaying_head = False
        self._framing_headers: list[Header] = []
        self._timer = self.loop.call_later(self._check_interval, self._check_timeouts)
        self._peer = network_of_host(self.client[0]) if self.client else ""
        if not self.connection_limit.add(self._peer):
            transport.write(_TOO_MANY_CONNECTIONS)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop checking the timeouts of the connection."""
        self._timer.cancel()
        self.connection_limit.remove(self._peer)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data from the client."""
        if self.flow.has_ended:
            return
        self._last_received = time.monotonic()
        self._is_idle = False
        self.parse_slices(data)

    def parse_slice(self, data: bytes) -> None:
        """Pass data to the parser, and refuse a head or trailers that are too large."""
        super().parse_slice(data)
        while self._upgrade_offset is not None and not self.transport.is_closing():
            data, self._upgrade_offset = data[self._upgrade_offset :], None
            self._continue_without_upgrade(data)
        size = self._head_bytes + _HEADER_OVERHEAD_BYTES * len(self.headers)
        if size > self.timeouts.max_header_bytes:
            if self.cycle is not None and not self.cycle.response_complete:
                self.send_400_response(_INVALID_REQUEST)
            else:
                self._abort()

    def on_message_begin(self) -> None:
        """Start the timeouts of a request. The parser calls this at the request's first byte."""
        if self._is_replaying_head:
            return
        self._start_request()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Apply the timeouts for bodies from now on. The parser calls this after the head."""
        if self._is_replaying_head:
            return
        self._is_in_head = False
        self._request_headers = self.headers
        self._num_body_bytes = 0
        self._remember_framing(self.headers)
        super().on_headers_complete()
        # Start a new list of headers, to which the parser adds the trailers of a chunked body: they
        # must not extend the list that the application has received.
        self.headers = []

    def on_message_complete(self) -> None:
        """Pause reading until the request is answered.

        The parser calls this method when it has read the end of a request.
        """
        if self.parser.should_upgrade():
            # Ignore the call if the request asks for a protocol upgrade: the request is not
            # complete then.
            return
        super().on_message_complete()
        if not self._may_read_next_request():
            self.flow.pause_reading()
        self._is_in_head = True
        self._head_bytes = 0
        self._request_started = self._last_received

    def _may_read_next_request(self) -> bool:
        # In uvicorn, `cycle` is the latest request, and `pipeline` is the queue of the requests
        # that follow the request being answered.
        cycle = self.cycle
        if self.pipeline or self._unparsed:
            return False
        return cycle is None or cycle.more_body or cycle.response_complete

    def _remember_framing(self, headers: Iterable[Header]) -> None:
        if self.parser.should_upgrade():
            self._framing_headers = [header for header in headers if header[0] in _FRAMING_HEADERS]

    def _unsupported_upgrade_warning(self) -> None:
        # uvicorn calls this method when the parser stops at a request for a protocol upgrade. Store
        # the offset at which parsing must continue.
        error = sys.exc_info()[1]
        assert isinstance(error, httptools.HttpParserUpgrade)
        self._upgrade_offset = error.args[0]

    def _continue_without_upgrade(self, data: bytes) -> None:
        """Parse the body of a request as if the request had not asked for a protocol upgrade."""
        self.parser = httptools.HttpRequestParser(self)
        with contextlib.suppress(AttributeError):
            # Allow further data after a request with "Connection: close", as uvicorn does for its
            # own parser.
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
            HttpToolsProtocol.data_received(self, data)

    def send_400_response(self, msg: str) -> None:
        """Refuse invalid data, and close the connection when all earlier requests are answered."""
        self.flow.end_reading()
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            super().send_400_response(msg)
        elif not cycle.more_body:
            # If the invalid data follows a complete request that is being answered, close the
            # connection after the response to that request. The invalid data gets no response.
            cycle.keep_alive = False
        elif self.pipeline:
            # Replace the application of the incomplete request by `_refuse`, which uvicorn calls
            # when the earlier requests are answered.
            self.pipeline[0] = (cycle, _refuse)
        else:
            # Report a disconnect to the application, so that it stops answering the incomplete
            # request, whose body is invalid.
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                self.transport.close()
            else:
                super().send_400_response(msg)

    def _start_request(self) -> None:
        self._num_parts += PARTS_PER_REQUEST
        self._is_client_probed = False
        self._request_started = self._last_received
        self._is_idle = False

    def _await_next_request(self) -> None:
        # Mark the connection as idle, so that `_check_timeouts` applies the keep-alive timeout:
        # after a response that was sent without uvicorn, uvicorn starts no keep-alive timer.
        self._is_in_head = True
        self._head_bytes = 0
        self._is_idle = True

    @property
    def _check_interval(self) -> float:
        timeouts = self.timeouts
        shortest = min(timeouts.headers_seconds, timeouts.idle_seconds, self.timeout_keep_alive)
        return float(shortest) / 4

    def _check_timeouts(self) -> None:
        # Check the timeouts of the connection at a fixed interval, because one timer for each
        # request would take more processor time.
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
        # Return True for any request that is being answered, without measuring how long that takes.
        # This method is called at a fixed interval, so that it seldom meets a quick request.
        cycle = self.cycle
        return cycle is not None and not cycle.more_body and not cycle.response_started

    def _has_client_left(self) -> bool:
        """Return whether the client has closed the connection before it got the response."""
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
        # While a complete request is being answered, apply no timeout for slow clients, because the
        # server and not the client is slow. Another limit applies then, `RestConfig.timeout_ms`.
        if self.cycle is not None and not self.cycle.response_complete:
            return False
        # Between two requests, the keep-alive timeout applies instead of the timeout for the head.
        is_kept_alive = self._is_idle or self.timeout_keep_alive_task is not None
        return now - self._request_started > self.timeouts.headers_seconds and not is_kept_alive

    def _abort(self) -> None:
        if self.cycle is not None:
            # Report a disconnect to the application, because no further bytes can be sent.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.abort()
