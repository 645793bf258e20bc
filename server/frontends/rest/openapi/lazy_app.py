"""Builds the OpenAPI application when its first request arrives."""

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send

from server.dataplane import DataPlaneInterface
from tpuserve.runtime import gc_control


class LazyOpenApiApp:
    """The ASGI application of `openapi.app`, which is built for its first request.

    Most servers never get such a request, and the import of FastAPI takes part of a second and
    20 MB.
    """

    def __init__(self, dataplane: DataPlaneInterface, requires_keys: bool) -> None:
        """Create the application; for the arguments see `openapi.app.build_openapi_app`."""
        self._dataplane = dataplane
        self._requires_keys = requires_keys
        self._app: ASGIApp | None = None
        self._lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        async with self._lock:
            if self._app is None:
                # Build the application in a thread, so that the event loop answers other requests.
                self._app = await asyncio.to_thread(self._build)
        await self._app(scope, receive, send)

    def _build(self) -> ASGIApp:
        with gc_control.gc_disabled():
            from server.frontends.rest.openapi.app import build_openapi_app

            return build_openapi_app(self._dataplane, self._requires_keys)
