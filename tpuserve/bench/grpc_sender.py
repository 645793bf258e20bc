"""Sends the requests of a measurement over gRPC."""

import grpc

from tpuserve.bench.sender import Sender
from tpuserve.client.call import Call
from tpuserve.client.retries import Deadline
from tpuserve.client.transports.grpc_transport import convert_error, open_async_channel
from tpuserve.client.transports.transport import Connection


class GrpcSender(Sender):
    """Sends all requests on one connection."""

    def __init__(self, connection: Connection, calls: list[Call], timeout_s: float) -> None:
        """Create a sender; see `create_sender`."""
        self._connection = connection
        self._channel = open_async_channel(connection)
        # The requests of a measurement are all of one method.
        self._method = self._channel.unary_unary(calls[0].path)
        self._bodies = [call.body for call in calls]
        self._metadata = tuple(connection.authorization().items()) or None
        self._timeout_s = timeout_s

    async def send(self, index: int) -> str:
        """Send a request and wait for its response."""
        body = self._bodies[index % len(self._bodies)]
        try:
            await self._method(body, timeout=self._timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            return str(convert_error(self._connection, error, Deadline(self._timeout_s)))
        return ""

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()
