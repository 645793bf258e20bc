"""Writes a line of the access log for each request over REST."""

import asyncio
import time
from functools import partial

from starlette.types import Message, Receive, Scope, Send

from server.frontends.rest.asgi_app import RootApp
from server.frontends.rest.transport.headers import Headers, Peer
from server.frontends.rest.transport.responses import AnySyncResponse, Response, SyncHandler
from server.request_log.access_log import AccessLog

_PROTOCOL = "REST"
# The prefix before the address of an IPv4 client, from a socket that accepts IPv6 and IPv4. The log
# omits the prefix.
_IPV4_PREFIX = "::ffff:"


class AccessLogMiddleware:
    """Logs each request of an application once the response is sent or the client has left."""

    def __init__(self, app: RootApp, log: AccessLog) -> None:
        """Wrap an application, whose requests are written to a log."""
        self._app = app
        self._log = log

    def close(self) -> None:
        """Close the wrapped application."""
        self._app.close()

    def find_fast_path(self, url: bytes, headers: Headers) -> SyncHandler | None:
        """Return the function that answers a request in the event loop, wrapped to log the request.

        Returns:
          None if the application's `find_fast_path` returns None.
        """
        handler = self._app.find_fast_path(url, headers)
        return None if handler is None else partial(self._handle_synchronously, handler, url)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the wrapped application, and log the request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status, received, sent = 0, 0, 0

        async def counting_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            return message

        async def counting_send(message: Message) -> None:
            nonlocal status, sent
            status = message.get("status", status)
            sent += len(message.get("body", b""))
            await send(message)

        response: Response | None = None
        try:
            response = await self._app.handle(scope, counting_receive, counting_send)
        finally:
            query = scope["query_string"].decode("latin-1")
            path = scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
            self._write(
                scope["method"], path, response, status, started, scope["client"], received, sent
            )

    def _handle_synchronously(
        self, handler: SyncHandler, url: bytes, headers: Headers, body: bytes, peer: Peer
    ) -> AnySyncResponse:
        started = time.perf_counter()
        response = handler(headers, body, peer)

        def write(response: Response) -> None:
            path, sent = url.decode("latin-1"), len(response.body)
            self._write("POST", path, response, response.status, started, peer, len(body), sent)

        if isinstance(response, asyncio.Future):
            response.add_done_callback(
                lambda future: None if future.cancelled() else write(future.result())
            )
        elif response is not None:
            write(response)
        return response

    def _write(
        self,
        method: str,
        path: str,
        response: Response | None,
        status: int,
        started: float,
        peer: Peer,
        received: int,
        sent: int,
    ) -> None:
        self._log.write(
            _PROTOCOL,
            method,
            path=path,
            model="" if response is None else response.model,
            version=None if response is None else response.version,
            signature="" if response is None else response.signature,
            status=status,
            duration_ms=(time.perf_counter() - started) * 1000,
            peer=peer[0].removeprefix(_IPV4_PREFIX) if peer else "",
            bytes_in=received,
            bytes_out=sent,
        )
