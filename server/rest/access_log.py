"""A line of JSON for each request."""

import logging
import time
from datetime import datetime, timezone

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger("server.access")


class AccessLog:
    """Middleware that logs each request once it is answered, or its client gone."""

    def __init__(self, app: ASGIApp) -> None:
        """Takes what answers."""
        self._app = app

    def close(self) -> None:
        """Lets go of what the application holds."""
        close = getattr(self._app, "close", None)
        if close is not None:
            close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands a request on, and logs it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
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

        try:
            await self._app(scope, counted_receive, counted_send)
        finally:
            milliseconds = round((time.perf_counter() - started) * 1000, 3)
            logger.info(_line(scope, status, received, sent, milliseconds))


def _line(scope: Scope, status: int, received: int, sent: int, milliseconds: float) -> str:
    client = scope.get("client") or ("", 0)
    query = scope["query_string"].decode("latin-1")
    return orjson.dumps(
        {
            "time": datetime.now(timezone.utc),
            "client": client[0],
            "method": scope["method"],
            "path": scope["raw_path"].decode("latin-1") + (f"?{query}" if query else ""),
            "status": status,
            "received_bytes": received,
            "sent_bytes": sent,
            "milliseconds": milliseconds,
        }
    ).decode()
