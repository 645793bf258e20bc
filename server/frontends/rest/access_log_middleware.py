"""Writes a line to the access log for each REST request."""

import asyncio
import time
from functools import partial

from starlette.types import Message, Receive, Scope, Send

from server.frontends.rest.asgi_app import RootApp
from server.frontends.rest.transport.headers import Headers, Peer
from server.frontends.rest.transport.responses import AnySyncResponse, Response, SyncHandler
from server.request_log.access_log import AccessLog

_PROTOCOL = "REST"
# A socket that accepts IPv6 and IPv4 puts this prefix before the addresses of IPv4 clients. The log
# omits it.
_IPV4_PREFIX = "::ffff:"


class AccessLogMiddleware:
    """Wraps the ASGI application of REST, and writes each request to the access log.

    A request is logged when its response is sent or its client has closed the connection.
    """

    def __init__(self, app: RootApp, log: AccessLog) -> None:
        self._app = app
        self._log = log

    def close(self) -> None:
        """Close the wrapped application."""
        self._app.close()

    def find_fast_path(self, url: bytes, headers: Headers) -> SyncHandler | None:
        """Return a function that answers a request in the event loop, and logs the request.

        Returns:
          The function. None if the application must answer the request through its ASGI interface.
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
