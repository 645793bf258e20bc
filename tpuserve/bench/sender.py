"""Defines the interface of the classes that send a benchmark's requests over HTTP or gRPC."""

from abc import ABC, abstractmethod

from tpuserve.client.call import Call
from tpuserve.client.retries import LONGEST_TIMEOUT_SECONDS
from tpuserve.client.transport import ConnectionSettings


class Sender(ABC):
    """Sends encoded requests to a server.

    A sender may only be used on the asyncio event loop on which it was created.
    """

    @abstractmethod
    async def send(self, index: int) -> str:
        """Send a request and wait for its response.

        Args:
          index: the number of the request, from 0. If the list of requests has n elements, the
            request is the element at position index % n.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close the connections to the server."""


def create_sender(
    connection: ConnectionSettings, calls: list[Call], connections: int, timeout_s: float
) -> Sender:
    """Create a sender for HTTP or gRPC, depending on the address of the server.

    Args:
      connections: the largest number of HTTP connections; gRPC uses a single connection.
      timeout_s: the time limit of a request in seconds; infinity is valid.
    """
    timeout_s = min(timeout_s, LONGEST_TIMEOUT_SECONDS)
    # Import only the library of the chosen protocol: each import takes time.
    if connection.address.is_http:
        from tpuserve.bench.http_sender import HttpSender

        return HttpSender(connection, calls, connections, timeout_s)
    from tpuserve.bench.grpc_sender import GrpcSender

    return GrpcSender(connection, calls, timeout_s)
