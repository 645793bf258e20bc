"""An HTTP connection whose small and quick requests are answered without uvicorn's overhead."""

import asyncio
from functools import partial
from typing import Any, ClassVar

from server.admission.memory_budget import MemoryReservation
from server.frontends.rest.transport.responses import Response, SyncHandler
from server.frontends.rest.transport.timeout_protocol import TimeoutProtocol
from server.frontends.rest.transport.uvicorn_compat import STATUS_LINE, HttpToolsProtocol

_MAX_BODY_BYTES = 1 << 16
# After this number of requests that arrived together on one connection, the next request is passed
# to uvicorn. uvicorn handles the request in an asyncio task, so the event loop first serves other
# clients.
_MAX_IN_A_ROW = 16
# If the body of a response has more bytes than this, it is not joined with the head before it is
# sent, because joining would copy the body.
_MAX_JOINED_BYTES = 1 << 16


class _WaitingRequest:
    """A request that is answered without uvicorn, and whose response is not complete yet."""

    __slots__ = ("disconnected", "keep_alive", "message_event", "response", "response_complete")

    more_body = response_started = False

    def __init__(self, response: "asyncio.Future[Response]") -> None:
        self.response = response
        self.response_complete = self.disconnected = False
        self.keep_alive = True
        self.message_event = asyncio.Event()


class FastPathProtocol(TimeoutProtocol):
    """An HTTP protocol that answers small, quick requests, and passes all others to uvicorn.

    For a request that may be quick, `find_fast_path` returns a handler. The protocol buffers the
    request until its body is complete, and calls the handler, without an asyncio task.

    Attributes:
      find_fast_path: Takes the URL and the headers of a POST request. Returns the handler, or None
        if uvicorn must handle the request.
    """

    # The type of `find_fast_path` is Any, because mypy would treat a callable class attribute as a
    # method.
    find_fast_path: ClassVar[Any] = staticmethod(lambda url, headers: None)

    _handler: SyncHandler
    # The received part of the buffered request's body. None if no request is buffered.
    _buffered_body: bytes | bytearray | None = None
    _num_in_a_row = 0
    # The memory reservation of a large response whose bytes the transport has not sent completely
    # yet. None if there is no such response.
    _unsent_memory: MemoryReservation | None = None

    def resume_writing(self) -> None:
        """Give the memory of a response back to the memory budget.

        asyncio calls this method when the transport has sent nearly all bytes of the response.
        """
        super().resume_writing()
        self._release_unsent()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the work for the connection, whose client has gone.

        A buffered request is passed to uvicorn, which tells the application of the disconnect.
        """
        self._release_unsent()
        if self._buffered_body is not None:
            self._pass_to_uvicorn()
        super().connection_lost(exc)
        if isinstance(self.cycle, _WaitingRequest):
            # Cancel the request that waits for its response, because its client has gone.
            self.cycle.response.cancel()

    def shutdown(self) -> None:
        """Close the connection when the current request is answered.

        A buffered request is passed to uvicorn, which answers it before the connection is closed.
        """
        if self._buffered_body is not None:
            self._pass_to_uvicorn()
        super().shutdown()

    def data_received(self, data: bytes) -> None:
        """Parse data from the client, and handle the requests in it."""
        self._num_in_a_row = 0
        super().data_received(data)

    def on_message_begin(self) -> None:
        """Prepare for a new request. The parser calls this at the start of each request."""
        if self._is_replaying_head:
            return
        self._start_request()
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_headers_complete(self) -> None:
        """Begin to buffer the request if it may be quick; otherwise pass it to uvicorn.

        The parser calls this when it has read the headers.
        """
        if self._is_replaying_head:
            return
        self._is_in_head = False
        self._num_body_bytes = 0
        handler = (
            self.find_fast_path(self.url, self.headers) if self._may_take_fast_path() else None
        )
        if handler is not None:
            self._num_in_a_row += 1
            self._handler = handler
            self._buffered_body = b""
            # Start a new list of headers, to which the parser adds the trailers of a chunked body:
            # they must not extend the list of the request's headers.
            self._request_headers, self.headers = self.headers, []
            return
        self._request_headers = self.headers
        self._remember_framing(self._request_headers)
        self._pass_to_uvicorn()

    def on_body(self, body: bytes) -> None:
        """Buffer a chunk of a request's body, or pass the chunk to uvicorn."""
        if self._buffered_body is None:
            super().on_body(body)
            return
        self._count_part(body)
        if not self._buffered_body:
            # Nearly all bodies have only one part, which is not copied.
            self._buffered_body = body
        elif isinstance(self._buffered_body, bytes):
            self._buffered_body = bytearray(self._buffered_body + body)
        else:
            self._buffered_body += body
        if len(self._buffered_body) > _MAX_BODY_BYTES:
            self._pass_to_uvicorn()

    def on_message_complete(self) -> None:
        """Answer a buffered request, or pass it to uvicorn.

        The parser calls this when it has read the end of the request.
        """
        if self._buffered_body is not None:
            response = self._handler(self._request_headers, bytes(self._buffered_body), self.client)
            if isinstance(response, asyncio.Future):
                self._buffered_body = None
                self._wait_for(response)
                return
            if response is not None:
                self._buffered_body = None
                self._send(response)
                self._await_next_request()
                return
            self._pass_to_uvicorn()
        super().on_message_complete()

    def _wait_for(self, response: "asyncio.Future[Response]") -> None:
        """Send a response when it is complete, and read no further data until then."""
        self.cycle = cycle = _WaitingRequest(response)
        self._is_in_head = True
        self._head_bytes = 0
        self.flow.pause_reading()
        response.add_done_callback(partial(self._send_later, cycle))

    def _send_later(self, cycle: "_WaitingRequest", response: "asyncio.Future[Response]") -> None:
        cycle.response_complete = True
        if response.cancelled():
            return
        if cycle.disconnected or self.transport.is_closing():
            response.result().release()
            return
        self._send(response.result())
        if not cycle.keep_alive:
            self.transport.close()
        elif self.cycle is cycle:
            self.flow.resume_reading()
            self._await_next_request()
        else:
            # Let uvicorn answer the next request, which has arrived on the connection meanwhile and
            # is in uvicorn's queue.
            self.on_response_complete()

    def _may_take_fast_path(self) -> bool:
        cycle, parser = self.cycle, self.parser
        return (
            (cycle is None or cycle.response_complete)
            and parser.get_method() == b"POST"
            and self._num_in_a_row < _MAX_IN_A_ROW
            and not self.expect_100_continue
            and not self.flow.write_paused
            and parser.should_keep_alive()
            and parser.get_http_version() == "1.1"
            and not parser.should_upgrade()
            and not self.transport.is_closing()
        )

    def _pass_to_uvicorn(self) -> None:
        """Pass the current request to uvicorn, with the part of it that has arrived."""
        url, body, expect_100_continue = self.url, self._buffered_body, self.expect_100_continue
        self._buffered_body = None
        HttpToolsProtocol.on_message_begin(self)
        self.url = url
        # Clear the flag `expect_100_continue` if the request was buffered. A request whose head has
        # the header "Expect" is never buffered.
        self.expect_100_continue = expect_100_continue and body is None
        self.headers.extend(self._request_headers)
        HttpToolsProtocol.on_headers_complete(self)
        self.headers = []
        if body:
            HttpToolsProtocol.on_body(self, body)

    def _send(self, response: Response) -> None:
        self.server_state.total_requests += 1
        headers = (*self.server_state.default_headers, *response.headers)
        head = b"%s%scontent-type: %s\r\ncontent-length: %d\r\n\r\n" % (
            STATUS_LINE[response.status],
            b"".join([b"%s: %s\r\n" % header for header in headers]),
            response.content_type,
            len(response.body),
        )
        if len(response.body) <= _MAX_JOINED_BYTES:
            self.transport.write(head + response.body)
        else:
            self.transport.writelines((head, response.body))
            self._unsent_memory = response.memory
            if not self.flow.write_paused:
                self._release_unsent()

    def _release_unsent(self) -> None:
        if self._unsent_memory is not None:
            self._unsent_memory.release()
            self._unsent_memory = None
