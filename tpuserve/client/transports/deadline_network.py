"""The network of blocking calls over HTTP, whose waits end together at the deadline of the call.

The timeouts of httpx limit each wait: a server that sends a byte now and then would hold a call
without an end.
"""

import ssl
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore

from tpuserve.client.retries import Deadline

# A write ends when its last byte is taken, and each of its waits has the whole remaining time.
_WRITTEN_BYTES = 1 << 18


class DeadlineNetwork(httpcore.SyncBackend):
    """Connects to servers; reads and writes end at the deadline of the calling thread's call."""

    def __init__(self) -> None:
        """Create a network without connections."""
        self._calls = threading.local()

    @contextmanager
    def limit(self, deadline: Deadline) -> Iterator[None]:
        """Let all waits of this thread end at a deadline."""
        self._calls.deadline = deadline
        try:
            yield
        finally:
            del self._calls.deadline

    def remaining_s(self) -> float:
        """Return the remaining time of the calling thread's call in seconds.

        Raises:
          DeadlineExceeded: no time remains.
        """
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
        """Connect to a server; see `httpcore.NetworkBackend`."""
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
