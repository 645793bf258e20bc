"""The interface of the senders of requests, and the choice of a sender by protocol."""

from abc import ABC, abstractmethod

from tpuserve.client.call import Call
from tpuserve.client.transports.transport import Connection


class Sender(ABC):
    """Sends encoded requests to a server on the event loop that has created it.

    The time between the call of `send` and its return is the latency of the request, so that an
    implementation does as little as possible in between.
    """

    @abstractmethod
    async def send(self, index: int) -> str:
        """Send a request and wait for its response.

        Args:
          index: the position of the request; the requests are sent in turn.

        Returns:
          "" for a successful response, else the error.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close the connections."""


def create_sender(
    connection: Connection, calls: list[Call], connections: int, timeout_s: float
) -> Sender:
    """Create the sender for the protocol of an address.

    Args:
      connection: the settings of the connection.
      calls: the requests.
      connections: the largest number of HTTP connections; gRPC needs one for all requests.
      timeout_s: the time limit of a request in seconds.
    """
    # Only the library of the chosen protocol is imported.
    if connection.address.is_http:
        from tpuserve.bench.http_sender import HttpSender

        return HttpSender(connection, calls, connections, timeout_s)
    from tpuserve.bench.grpc_sender import GrpcSender

    return GrpcSender(connection, calls, timeout_s)
