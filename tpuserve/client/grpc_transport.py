"""Sends encoded requests to a server over gRPC, for the blocking and the asyncio client."""

from typing import Any

import grpc
import grpc.aio

from tpuserve.client.call import Call, Reply
from tpuserve.client.retries import Deadline
from tpuserve.client.transport import ConnectionSettings, grpc_error
from tpuserve.errors import TpuserveError

# The largest value that gRPC accepts for a channel option. The limit of a reply's size must not
# exceed it.
_MAX_INT = 2**31 - 1
_OPTIONS = (
    # Allow requests of any size, because tensors may be large.
    ("grpc.max_send_message_length", -1),
    # Let gRPC reconnect after 0.1 s, and switch off its retries: the client retries calls itself,
    # with waits between the attempts.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.enable_retries", 0),
)


class GrpcTransport:
    """Sends the calls of the blocking client over gRPC. Several threads may share an instance."""

    def __init__(self, connection: ConnectionSettings) -> None:
        self._connection = connection
        self._metadata = tuple(connection.authorization().items()) or None
        target = connection.address.base
        if connection.address.is_secure:
            self._channel = grpc.secure_channel(
                target, _credentials(connection), _options(connection)
            )
        else:
            self._channel = grpc.insecure_channel(target, _options(connection))
        self._methods: dict[str, Any] = {}

    def send(self, call: Call, deadline: Deadline) -> Reply:
        """Send a call and return its reply."""
        method = self._methods.get(call.path)
        if method is None:
            method = self._methods[call.path] = self._channel.unary_unary(call.path)
        try:
            return Reply(method(call.body, timeout=deadline.remaining_s(), metadata=self._metadata))
        except grpc.RpcError as error:
            raise convert_error(self._connection, error, deadline) from error

    def close(self) -> None:
        """Close the gRPC channel."""
        self._channel.close()


class AsyncGrpcTransport:
    """Sends the calls of the asyncio client over gRPC, on one event loop."""

    def __init__(self, connection: ConnectionSettings) -> None:
        self._connection = connection
        self._metadata = tuple(connection.authorization().items()) or None
        self._channel: Any = None
        self._methods: dict[str, Any] = {}

    async def send(self, call: Call, deadline: Deadline) -> Reply:
        """Send a call and return its reply."""
        if self._channel is None:
            self._channel = open_async_channel(self._connection)
        method = self._methods.get(call.path)
        if method is None:
            method = self._methods[call.path] = self._channel.unary_unary(call.path)
        try:
            return Reply(
                await method(call.body, timeout=deadline.remaining_s(), metadata=self._metadata)
            )
        except grpc.RpcError as error:
            raise convert_error(self._connection, error, deadline) from error

    async def close(self) -> None:
        """Close the gRPC channel."""
        if self._channel is not None:
            await self._channel.close()


def open_async_channel(connection: ConnectionSettings) -> Any:
    """Create a grpc.aio channel for the running event loop, with the client's channel options."""
    target = connection.address.base
    if connection.address.is_secure:
        return grpc.aio.secure_channel(target, _credentials(connection), _options(connection))
    return grpc.aio.insecure_channel(target, _options(connection))


def _options(connection: ConnectionSettings) -> tuple[tuple[str, int], ...]:
    max_bytes = min(connection.max_reply_bytes, _MAX_INT)
    return (*_OPTIONS, ("grpc.max_receive_message_length", max_bytes))


def _credentials(connection: ConnectionSettings) -> Any:
    return grpc.ssl_channel_credentials(connection.read_ca_file())


def convert_error(connection: ConnectionSettings, error: Any, deadline: Deadline) -> TpuserveError:
    """Convert the grpc.RpcError of a call to the client's error for its status."""
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return deadline.error()
    return grpc_error(connection, error.code().value[0], error.details() or "")
