"""Messages to who may never read them: handed to gRPC, and not waited for.

grpcio itself keeps a thread until a message has left, which is as long as its reader likes. That
uses what is grpcio's own matter; `grpcio.supports_direct_polling` says whether it can be used.
"""

from collections import deque
from typing import Any

from grpc import _server
from grpc._cython import cygrpc


class NonBlockingStreamWriter:
    """Sends the messages of one stream, one after the other; None ends it well."""

    def __init__(self, context: Any) -> None:
        """Takes the context of a call."""
        self._state = context._state
        self._event = context._rpc_event
        self._left: deque[bytes | None] = deque()
        self._is_sending = False

    def __call__(self, message: bytes | None) -> None:
        """Has a message sent after those before it."""
        with self._state.condition:
            self._left.append(message)
            self._go_on()

    def _go_on(self) -> None:
        state = self._state
        if self._is_sending or not self._left or not _server._is_rpc_state_active(state):
            return
        message = self._left.popleft()
        if message is None:
            _server._status(self._event, state, None)
            return
        operations: list[Any] = [cygrpc.SendMessageOperation(message, _server._EMPTY_FLAGS)]
        if state.initial_metadata_allowed:
            operations.append(_server._get_initial_metadata_operation(state, None))
            state.initial_metadata_allowed = False
        token = _server._SEND_MESSAGE_TOKEN
        noted = _server._send_message(state, token)

        def sent(event: Any) -> Any:
            told = noted(event)
            with state.condition:
                self._is_sending = False
                self._go_on()
            return told

        self._event.call.start_server_batch(tuple(operations), sent)
        state.due.add(token)
        self._is_sending = True
