"""Builds the OpenAPI application when its first request arrives."""

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send

from server.dataplane import DataPlane
from server.frontends.rest.openapi.options import DocumentOptions
from tpuserve.runtime import gc_control


class LazyOpenApiApp:
    """The ASGI application of the OpenAPI document and page, which is built for its first request.

    Most servers never get such a request, and the import of FastAPI would cost each of them a part
    of a second and 20 MB of memory.
    """

    def __init__(self, dataplane: DataPlane, options: DocumentOptions) -> None:
        """Create the object; FastAPI is not imported yet.

        Args:
          dataplane: Has the models and their signatures.
          options: The settings of the server on which the document depends.
        """
        self._dataplane = dataplane
        self._options = options
        self._app: ASGIApp | None = None
        self._lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, after building the application if needed."""
        async with self._lock:
            if self._app is None:
                # Build the application in a thread, so that the event loop answers other requests
                # meanwhile.
                self._app = await asyncio.to_thread(self._build)
        await self._app(scope, receive, send)

    def _build(self) -> ASGIApp:
        with gc_control.gc_disabled():
            from server.frontends.rest.openapi.app import build_openapi_app

            return build_openapi_app(self._dataplane, self._options)
