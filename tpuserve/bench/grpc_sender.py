"""Sends the requests of a benchmark over gRPC."""

import grpc

from tpuserve.bench.sender import Sender
from tpuserve.client.call import Call
from tpuserve.client.grpc_transport import convert_error, open_async_channel
from tpuserve.client.retries import Deadline
from tpuserve.client.transport import ConnectionSettings


class GrpcSender(Sender):
    """Sends the requests of a benchmark over gRPC, all on one channel."""

    def __init__(self, connection: ConnectionSettings, calls: list[Call], timeout_s: float) -> None:
        self._connection = connection
        self._channel = open_async_channel(connection)
        # All requests of a benchmark call the same gRPC method, so the first one's path is enough.
        self._method = self._channel.unary_unary(calls[0].path)
        self._bodies = [call.body for call in calls]
        self._metadata = tuple(connection.authorization().items()) or None
        self._timeout_s = timeout_s

    async def send(self, index: int) -> str:
        """Send the request with a given index, and wait for its response; see `Sender.send`."""
        body = self._bodies[index % len(self._bodies)]
        try:
            await self._method(body, timeout=self._timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            return str(convert_error(self._connection, error, Deadline(self._timeout_s)))
        return ""

    async def close(self) -> None:
        """Close the gRPC channel."""
        await self._channel.close()
