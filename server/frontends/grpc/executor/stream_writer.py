"""Writes response streams without waiting for the client to read.

The function with which grpcio sends a message blocks the thread while the client reads slowly. This
module uses grpcio's private API instead.
"""

from collections import deque
from typing import Any

from grpc import _server
from grpc._cython import cygrpc


class NonBlockingStreamWriter:
    """Sends the messages of one response stream in order, without blocking the sending thread."""

    def __init__(self, context: Any) -> None:
        self._state = context._state
        self._event = context._rpc_event
        self._pending: deque[bytes | None] = deque()
        self._is_sending = False

    def __call__(self, message: bytes | None) -> None:
        """Queue a serialised message and return at once. None ends the stream with status OK."""
        with self._state.condition:
            self._pending.append(message)
            self._send_next()

    def _send_next(self) -> None:
        """Pass the next queued message to gRPC, unless gRPC still sends the previous one."""
        state = self._state
        if self._is_sending or not self._pending or not _server._is_rpc_state_active(state):
            return
        message = self._pending.popleft()
        if message is None:
            _server._status(self._event, state, None)
            return
        operations: list[Any] = [cygrpc.SendMessageOperation(message, _server._EMPTY_FLAGS)]
        if state.initial_metadata_allowed:
            operations.append(_server._get_initial_metadata_operation(state, None))
            state.initial_metadata_allowed = False
        token = _server._SEND_MESSAGE_TOKEN
        on_grpcio_sent = _server._send_message(state, token)

        def on_sent(event: Any) -> Any:
            finished = on_grpcio_sent(event)
            with state.condition:
                self._is_sending = False
                self._send_next()
            return finished

        self._event.call.start_server_batch(tuple(operations), on_sent)
        state.due.add(token)
        self._is_sending = True
