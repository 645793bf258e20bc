"""Sends encoded requests to a server over HTTP, for the blocking and the asyncio client."""

import asyncio
import ssl
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore
import httpx

from tpuserve.client.call import Call, Reply
from tpuserve.client.httpx_internals import set_network_backend
from tpuserve.client.retries import Deadline
from tpuserve.client.transport import ConnectionSettings, http_error, too_large_error
from tpuserve.errors import InvalidReply, InvalidSetting, TpuserveError

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


# The content encodings of responses that the client decodes.
_ENCODINGS = ("", "identity", "gzip", "deflate")


class HttpTransport:
    """Sends the calls of the blocking client over HTTP. Several threads may share an instance."""

    def __init__(self, connection: ConnectionSettings) -> None:
        self._connection = connection
        self._client = httpx.Client(**_settings(connection))
        self._network = DeadlineNetwork()
        set_network_backend(self._client, self._network)
        self._requests = _RequestFactory(connection)

    def send(self, call: Call, deadline: Deadline) -> Reply:
        """Send a call and return its reply."""
        try:
            with self._network.limit(deadline):
                request = self._requests.create(call, deadline)
                response = self._client.send(request, stream=True)
                try:
                    body = _Body(self._connection, response)
                    for chunk in response.iter_bytes():
                        body.append(chunk)
                finally:
                    response.close()
        except httpx.HTTPError as error:
            raise _convert_error(self._connection, error, deadline) from error
        return body.to_reply()

    def close(self) -> None:
        """Close all connections to the server."""
        self._client.close()


class AsyncHttpTransport:
    """Sends the calls of the asyncio client over HTTP, on one event loop."""

    def __init__(self, connection: ConnectionSettings) -> None:
        self._connection = connection
        self._client = httpx.AsyncClient(**_settings(connection))
        self._requests = _RequestFactory(connection)

    async def send(self, call: Call, deadline: Deadline) -> Reply:
        """Send a call and return its reply."""
        try:
            async with asyncio.timeout(deadline.remaining_s()):
                return await self._send(call, deadline)
        except TimeoutError as error:
            raise deadline.error() from error
        except httpx.HTTPError as error:
            raise _convert_error(self._connection, error, deadline) from error

    async def _send(self, call: Call, deadline: Deadline) -> Reply:
        response = await self._client.send(self._requests.create(call, deadline), stream=True)
        try:
            body = _Body(self._connection, response)
            async for chunk in response.aiter_bytes():
                body.append(chunk)
        finally:
            await response.aclose()
        return body.to_reply()

    async def close(self) -> None:
        """Close all connections to the server."""
        await self._client.aclose()


def _settings(connection: ConnectionSettings) -> dict[str, Any]:
    verify: ssl.SSLContext | bool = True
    if connection.ca_file is not None:
        connection.read_ca_file()
        try:
            verify = ssl.create_default_context(cafile=connection.ca_file)
        except ssl.SSLError as error:
            raise InvalidSetting(
                f"ca_file is {connection.ca_file!r}, which has no certificate ({error.reason}). "
                f"Give a PEM file with certificates."
            ) from error
    # Without TLS, pass an SSL context that has no trusted certificates. If no context were passed,
    # httpx would read its file of certificates, which takes most of the time of creating a client.
    elif not connection.address.is_secure:
        verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Do not limit the number of connections, so that each simultaneous call can have its own.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    return {"verify": verify, "limits": limits}


class _RequestFactory:
    """Creates the httpx requests for calls, and keeps the parsed URLs."""

    def __init__(self, connection: ConnectionSettings) -> None:
        self._base = connection.address.base
        self._headers = {
            "accept": "*/*",
            "accept-encoding": "gzip, deflate",
            "user-agent": "tpuserve",
            **connection.authorization(),
        }
        self._urls: dict[str, httpx.URL] = {}

    def create(self, call: Call, deadline: Deadline) -> httpx.Request:
        url = self._urls.get(call.path)
        if url is None:
            url = self._urls[call.path] = httpx.URL(self._base + call.path)
        remaining = deadline.remaining_s()
        return httpx.Request(
            "GET" if call.body is None else "POST",
            url,
            headers={**self._headers, **call.headers},
            content=call.body,
            extensions={"timeout": dict.fromkeys(("connect", "read", "write", "pool"), remaining)},
        )


def _convert_error(
    connection: ConnectionSettings, error: httpx.HTTPError, deadline: Deadline
) -> TpuserveError:
    if isinstance(error, httpx.TimeoutException):
        return deadline.error()
    if isinstance(error, httpx.RemoteProtocolError):
        reason = f"{error} (the URL of a gRPC port begins with grpc://)"
        return connection.unreachable_error(reason)
    return connection.unreachable_error(error)


class _Body:
    """Collects the body of a response, and raises InvalidReply if it is larger than the limit."""

    def __init__(self, connection: ConnectionSettings, response: httpx.Response) -> None:
        self._max_bytes = connection.max_reply_bytes
        self._response = response
        self._chunks: list[bytes] = []
        self._size = 0
        encoding = response.headers.get("content-encoding", "").strip().lower()
        if encoding not in _ENCODINGS:
            raise InvalidReply(
                f"the server's answer has the content encoding {encoding[:80]!r}, and the client "
                f"accepts gzip or deflate. Look at the server and at the proxies before it."
            )

    def append(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._size > self._max_bytes:
            raise too_large_error(self._max_bytes)
        self._chunks.append(chunk)

    def to_reply(self) -> Reply:
        response, body = self._response, b"".join(self._chunks)
        if response.is_success:
            return Reply(body, response.headers)
        raise http_error(response.status_code, response.headers, body)
