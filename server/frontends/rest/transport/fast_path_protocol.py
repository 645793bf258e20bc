"""Small requests answered as soon as they have come: with no task, and nothing in between."""

from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from server.frontends.rest.transport.responses import Headers, Peer, Response
from server.frontends.rest.transport.timeouts import ConnectionTimeouts, TimeoutProtocol

SyncHandler: TypeAlias = Callable[[Headers, bytes, Peer], Response | None]
"""The reply to the headers and body of a request; None where that would take long."""
SyncHandlerLookup: TypeAlias = Callable[[bytes], SyncHandler | None]
"""What answers the requests to a URL at once; None where they take long."""

_MAX_BYTES = 4096
# So many of those that one client has sent in a row; the next one gives others their turn.
_MOST_IN_A_ROW = 16
# A larger reply is not copied to be sent with its head.
_MAX_JOINED_BYTES = 1 << 16


class FastPathProtocol(TimeoutProtocol):
    """uvicorn's HTTP protocol, passed by where a request can be answered at once.

    A request is held back from it until its body has come, and is handed over to it as if
    nothing had been: once the body is too large, the connection ends, or nobody answers at once.
    """

    # A `SyncHandlerLookup`; as such mypy would take it for a method.
    find: ClassVar[Any] = staticmethod(lambda url: None)

    _answer: SyncHandler
    _head: Headers
    # What has come of the body of a request that is held back; None where none is.
    _body: bytes | None = None
    _in_a_row = 0

    def connection_lost(self, exc: Exception | None) -> None:
        """Lets the application know, if a request has begun."""
        if self._body is not None:
            self._hand_over()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Closes the connection, after the request that has begun."""
        if self._body is not None:
            self._hand_over()
        super().shutdown()

    def data_received(self, data: bytes) -> None:
        """Takes in what the client has sent."""
        self._in_a_row = 0
        super().data_received(data)

    def on_message_begin(self) -> None:
        """A request's first byte has come."""
        if self._is_told_again:
            return
        self._begin()
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_headers_complete(self) -> None:
        """A request's head has come."""
        if self._is_told_again:
            return
        self._is_in_head = False
        cycle, parser = self.cycle, self.parser
        if (
            (cycle is None or cycle.response_complete)
            and parser.get_method() == b"POST"
            and self._in_a_row < _MOST_IN_A_ROW
            and not self.expect_100_continue
            and not self.flow.write_paused
            and parser.should_keep_alive()
            and parser.get_http_version() == "1.1"
            and not parser.should_upgrade()
            and not self.transport.is_closing()
        ):
            answer = self.find(self.url)
            if answer is not None:
                self._in_a_row += 1
                self._answer = answer
                self._body = b""
                # What comes behind the body are no headers.
                self._head, self.headers = self.headers, []
                return
        self._head = self.headers
        self._note_framing(self._head)
        self._hand_over()

    def on_body(self, body: bytes) -> None:
        """A piece of a body has come."""
        if self._body is None:
            super().on_body(body)
            return
        self._body += body
        if len(self._body) > _MAX_BYTES:
            self._hand_over()

    def on_message_complete(self) -> None:
        """A request has come, whole."""
        if self._body is not None:
            reply = self._answer(self._head, self._body, self.client)
            if reply is not None:
                self._body = None
                self._send(reply)
                self._await_request()
                return
            self._hand_over()
        super().on_message_complete()

    def _hand_over(self) -> None:
        # To uvicorn, which is told what it has missed.
        url, body, expects = self.url, self._body, self.expect_100_continue
        self._body = None
        HttpToolsProtocol.on_message_begin(self)
        self.url = url
        # One that expects it is not held back; later it is said in no header.
        self.expect_100_continue = expects and body is None
        self.headers.extend(self._head)
        HttpToolsProtocol.on_headers_complete(self)
        self.headers = []
        if body:
            HttpToolsProtocol.on_body(self, body)

    def _send(self, reply: Response) -> None:
        self.server_state.total_requests += 1
        common = (*self.server_state.default_headers, *reply.headers)
        head = b"%s%scontent-type: %s\r\ncontent-length: %d\r\n\r\n" % (
            STATUS_LINE[reply.status],
            b"".join([b"%s: %s\r\n" % each for each in common]),
            reply.content_type,
            len(reply.body),
        )
        if len(reply.body) <= _MAX_JOINED_BYTES:
            self.transport.write(head + reply.body)
        else:
            self.transport.writelines((head, reply.body))


def protocol(timeouts: ConnectionTimeouts, find: SyncHandlerLookup | None) -> type[TimeoutProtocol]:
    """The protocol for some bounds and an application; uvicorn makes its instances itself."""
    if find is None:
        return type("BoundPatientProtocol", (TimeoutProtocol,), {"timeouts": timeouts})
    members = {"timeouts": timeouts, "find": staticmethod(find)}
    return type("BoundPromptProtocol", (FastPathProtocol,), members)
