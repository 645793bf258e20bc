"""The description of the API and a page to read it and try it out, with nothing from elsewhere."""

from typing import Any

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline

from server.dataplane import DataPlane
from server.rest import openapi

_STATIC = "/docs/static"
PATHS = ("/docs", "/openapi.json")
"""What the paths of it begin with."""


def build(dataplane: DataPlane) -> FastAPI:
    """The application for `PATHS`; what it describes is what is served when it is asked."""
    app: FastAPI = FastAPIOffline(title=openapi.TITLE, redoc_url=None, static_url=_STATIC)

    def describe() -> dict[str, Any]:
        return openapi.describe(dataplane)

    app.openapi = describe  # type: ignore[method-assign]
    return app
