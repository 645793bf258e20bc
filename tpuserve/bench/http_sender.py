"""Sends the requests of a benchmark over HTTP/1.1.

For a request to a small model, httpx takes several times as long as the server, so that a benchmark
with httpx would measure the client.
"""

import asyncio
import ssl
from collections.abc import Mapping
from typing import cast
from urllib.parse import urlsplit

import httptools

from tpuserve.bench.sender import Sender
from tpuserve.client.call import Call
from tpuserve.client.transport import ConnectionSettings, http_error

_PORTS = {"http": 80, "https": 443}


class HttpSender(Sender):
    """Sends the requests of a benchmark over HTTP/1.1.

    A connection has one request at a time; connections are reused.
    """

    def __init__(
        self, connection: ConnectionSettings, calls: list[Call], connections: int, timeout_s: float
    ) -> None:
        parts = urlsplit(connection.address.base)
        self._connection = connection
        self._host = parts.hostname or ""
        self._port = parts.port or _PORTS[parts.scheme]
        self._tls = _tls_context(connection)
        headers = connection.authorization()
        self._payloads = [_encode(parts.netloc, call, headers) for call in calls]
        self._timeout_s = timeout_s
        self._free = asyncio.Semaphore(connections)
        self._idle: list[_HttpConnection] = []
        self._all: set[_HttpConnection] = set()

    async def send(self, index: int) -> str:
        """Send the request with a given index, and wait for its response; see `Sender.send`."""
        async with self._free:
            try:
                connection = self._take_idle() or await self._connect_in_time()
            except OSError as error:
                return str(self._connection.unreachable_error(error))
            result = await connection.request(self._payloads[index % len(self._payloads)])
            if connection.is_open:
                self._idle.append(connection)
            else:
                self._all.discard(connection)
            return result

    async def close(self) -> None:
        """Close all connections to the server."""
        for connection in self._all:
            connection.close()
        self._all.clear()

    def _take_idle(self) -> "_HttpConnection | None":
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
            self._all.discard(connection)
        return None

    async def _connect_in_time(self) -> "_HttpConnection":
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._connect()
        except TimeoutError as error:
            raise OSError(f"no connection within {self._timeout_s:g} s") from error

    async def _connect(self) -> "_HttpConnection":
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: _HttpConnection(loop, self._timeout_s), self._host, self._port, ssl=self._tls
        )
        self._all.add(connection)
        return connection


class _HttpConnection(asyncio.Protocol):
    """An HTTP/1.1 connection that has at most one request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_s: float) -> None:
        self.is_open = False
        self._loop = loop
        self._timeout_s = timeout_s
        self._transport: asyncio.Transport | None = None
        self._response: asyncio.Future[str] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []

    async def request(self, payload: bytes) -> str:
        """Send a request; return "" for a successful response, else the error."""
        assert self._transport is not None
        self._response = self._loop.create_future()
        timer = self._loop.call_later(self._timeout_s, self._give_up)
        self._transport.write(payload)
        try:
            return await self._response
        finally:
            timer.cancel()

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._finish(f"the answer is no HTTP: {error}")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._finish(f"the server closed the connection: {exc or 'without an answer'}")

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body of an error response; httptools calls this method."""
        if self._parser.get_status_code() >= 300:
            self._body.append(body)

    def on_message_complete(self) -> None:
        """Finish the request at the end of its response; httptools calls this method."""
        status = self._parser.get_status_code()
        if not self._parser.should_keep_alive():
            self.close()
        if 200 <= status < 300:
            self._finish("")
        elif status >= 300:
            self._finish(str(http_error(status, {}, b"".join(self._body))))
            self._body.clear()

    def _give_up(self) -> None:
        self._finish(f"no answer within {self._timeout_s:g} s")
        self.close()

    def _finish(self, result: str) -> None:
        if self._response is not None and not self._response.done():
            self._response.set_result(result)


def _encode(host: str, call: Call, headers: Mapping[str, str]) -> bytes:
    body = call.body or b""
    all_headers = {"host": host, "content-length": str(len(body)), **headers, **call.headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in all_headers.items())
    return f"POST {call.path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body


def _tls_context(connection: ConnectionSettings) -> ssl.SSLContext | None:
    if not connection.address.is_secure:
        return None
    connection.read_ca_file()
    return ssl.create_default_context(cafile=connection.ca_file)
