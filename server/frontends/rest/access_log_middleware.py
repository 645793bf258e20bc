"""A line of the access log for each request over REST."""

import time
from functools import partial

from starlette.types import Message, Receive, Scope, Send

from server.frontends.rest.asgi_app import RootApp
from server.frontends.rest.transport.fast_path_protocol import SyncHandler
from server.frontends.rest.transport.responses import Headers, Peer, Response
from server.request_log.access_log import AccessLog

_PROTOCOL = "REST"
# How a socket of both kinds writes an address of IPv4.
_MAPPED = "::ffff:"


class AccessLogMiddleware:
    """A face whose requests are logged, once answered or once their client has gone."""

    def __init__(self, front: RootApp, log: AccessLog) -> None:
        """Takes what answers."""
        self._front = front
        self._log = log

    def close(self) -> None:
        """Lets go of what the face holds."""
        self._front.close()

    def find(self, url: bytes) -> SyncHandler | None:
        """What answers the requests to a URL at once, and logs them."""
        answer = self._front.find(url)
        return None if answer is None else partial(self._answer, answer, url)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands a request on, and logs it."""
        if scope["type"] != "http":
            await self._front(scope, receive, send)
            return
        started = time.perf_counter()
        status, received, sent = 0, 0, 0

        async def counted_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            return message

        async def counted_send(message: Message) -> None:
            nonlocal status, sent
            status = message.get("status", status)
            sent += len(message.get("body", b""))
            await send(message)

        reply: Response | None = None
        try:
            reply = await self._front.answer(scope, counted_receive, counted_send)
        finally:
            query = scope["query_string"].decode("latin-1")
            path = scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
            self._write(
                scope["method"], path, reply, status, started, scope["client"], received, sent
            )

    def _answer(
        self, answer: SyncHandler, url: bytes, headers: Headers, body: bytes, peer: Peer
    ) -> Response | None:
        started = time.perf_counter()
        reply = answer(headers, body, peer)
        if reply is not None:
            path, sent = url.decode("latin-1"), len(reply.body)
            self._write("POST", path, reply, reply.status, started, peer, len(body), sent)
        return reply

    def _write(
        self,
        method: str,
        path: str,
        reply: Response | None,
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
            model="" if reply is None else reply.model,
            version=None if reply is None else reply.version,
            signature="" if reply is None else reply.signature,
            status=status,
            duration_ms=(time.perf_counter() - started) * 1000,
            peer=peer[0].removeprefix(_MAPPED) if peer else "",
            bytes_in=received,
            bytes_out=sent,
        )
