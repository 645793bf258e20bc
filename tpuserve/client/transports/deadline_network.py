"""A network backend for httpx that ends a whole blocking call at its deadline.

A timeout of httpx limits only each single read or write. A server that sends a byte now and then
would keep a call waiting forever.
"""

import ssl
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore

from tpuserve.client.retries import Deadline

# Number of bytes of each write. httpcore applies a timeout to each wait within a write. Writing a
# whole body to a slow server could take many times the timeout.
_WRITTEN_BYTES = 1 << 18


class DeadlineNetwork(httpcore.SyncBackend):
    """Connects to servers, and ends reads and writes at the deadline of the call.

    Each thread sets the deadline of its own call with `limit`.
    """

    def __init__(self) -> None:
        self._calls = threading.local()

    @contextmanager
    def limit(self, deadline: Deadline) -> Iterator[None]:
        """End all network waits of this thread at a deadline, inside of a `with` block."""
        self._calls.deadline = deadline
        try:
            yield
        finally:
            del self._calls.deadline

    def remaining_s(self) -> float:
        """Return the time in seconds until the deadline that this thread has set with `limit`."""
        deadline: Deadline = self._calls.deadline
        return deadline.remaining_s()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to a server; the arguments are those of `httpcore.NetworkBackend.connect_tcp`.

        The timeout is ignored: the deadline of the call limits the time instead.
        """
        stream = super().connect_tcp(host, port, self.remaining_s(), local_address, socket_options)
        return _DeadlineStream(stream, self)


class _DeadlineStream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, network: DeadlineNetwork) -> None:
        self._stream = stream
        self._network = network
        self.close = stream.close  # type: ignore[method-assign]
        self.get_extra_info = stream.get_extra_info  # type: ignore[method-assign]

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._network.remaining_s())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _WRITTEN_BYTES):
            self._stream.write(buffer[start : start + _WRITTEN_BYTES], self._network.remaining_s())

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        stream = self._stream.start_tls(ssl_context, server_hostname, self._network.remaining_s())
        return _DeadlineStream(stream, self._network)
