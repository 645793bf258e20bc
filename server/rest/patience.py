"""How long a client may take: without a bound, slow ones would fill a server with connections."""

import time
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


@dataclass(frozen=True)
class Patience:
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


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    body = b"Invalid HTTP request received."
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class PatientProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol that hangs up on clients who take too long."""

    patience = Patience()

    def connection_made(self, transport: Any) -> None:
        """Begins to wait for a request."""
        super().connection_made(transport)
        self._heard = self._began = time.monotonic()
        self._head_bytes = 0
        self._unsent = 0
        self._is_in_head = True
        self._is_idle = False
        self._check = self.loop.call_later(self._interval, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends all waiting."""
        self._check.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Takes in what the client has sent."""
        self._heard = time.monotonic()
        self._is_idle = False
        if self._is_in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._is_in_head and self._head_bytes > self.patience.max_header_bytes:
            self._hang_up()

    def on_message_begin(self) -> None:
        """A request's first byte has come."""
        self._begin()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """A request's head has come."""
        self._is_in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """A request has come, whole."""
        super().on_message_complete()
        self._is_in_head = True
        self._head_bytes = 0
        self._began = self._heard

    def send_400_response(self, msg: str) -> None:
        """Refuses what is no request: after the answers to those before it, and ends with it."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            super().send_400_response(msg)
        elif not cycle.more_body:
            # What has come before is whole, and its answer is the last one.
            cycle.keep_alive = False
            self.flow.pause_reading()
        elif self.pipeline:
            # Of those that wait for their turn the latest comes first.
            self.pipeline[0] = (cycle, _refuse)
            self.flow.pause_reading()
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
        patience = self.patience
        shortest = min(patience.headers_seconds, patience.idle_seconds, self.timeout_keep_alive)
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
            return now - self._heard > self.patience.idle_seconds
        if not self._is_in_head:
            return (
                now - self._heard > self.patience.idle_seconds
                and not self.flow.read_paused
                or now - self._began > self.patience.body_seconds
            )
        # A whole request has come: its answer may take as long as it does.
        if self.cycle is not None and not self.cycle.response_complete:
            return False
        return now - self._began > self.patience.headers_seconds and not self._is_kept_alive()

    def _is_kept_alive(self) -> bool:
        # Between two requests uvicorn itself hangs up, after one that it has seen.
        return self._is_idle or self.timeout_keep_alive_task is not None

    def _hang_up(self) -> None:
        self.transport.abort()
