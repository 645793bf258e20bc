"""Serves the OpenAPI document, and a page with Swagger UI whose files all come from this server.

A client needs no API key for the page and its files, which reveal nothing about the models. The
document, /openapi.json, describes the models, so that a client needs a key for it if the server
requires keys. Then the page asks the user for the key, and passes it to Swagger UI's dialogue
"Authorize". The page does not store the key.
"""

from html import escape
from importlib import resources

import fastapi_offline
from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles
from starlette.responses import HTMLResponse, JSONResponse, Response

from server.dataplane import DataPlane
from server.frontends.rest.openapi import document, paths
from server.frontends.rest.openapi.options import DocumentOptions
from server.frontends.rest.transport.shared_builds import SharedBuilds

_HTML = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{escape(document.TITLE)}</title>
<link rel="icon" href="{paths.STATIC}/favicon.png">
<link rel="stylesheet" href="{paths.STATIC}/swagger-ui.css">
</head>
<body>
<form id="key-form" hidden>
<label>This server requires an API key:
<input id="key" type="password" autocomplete="off"></label>
<button>Authorize</button>
</form>
<p id="refusal" role="alert"></p>
<div id="swagger-ui"></div>
<script src="{paths.STATIC}/swagger-ui-bundle.js"></script>
<script src="{paths.STATIC}/page.js"></script>
</body>
</html>
"""
_SCRIPT = "page.js"


def build_openapi_app(dataplane: DataPlane, options: DocumentOptions) -> FastAPI:
    """Build the ASGI application that serves the OpenAPI document and the Swagger UI page.

    The document is built again when a client requests it, so that it describes the current models.
    If several requests wait for the next build to begin, they share its result.

    Args:
      dataplane: Has the models and their signatures.
      options: The settings of the server on which the document depends.
    """
    app = FastAPI(title=document.TITLE, docs_url=None, redoc_url=None, openapi_url=None)

    script_text = (resources.files(__package__) / _SCRIPT).read_bytes()

    builds: SharedBuilds[JSONResponse] = SharedBuilds()

    def build() -> JSONResponse:
        return JSONResponse(document.build_document(dataplane, options))

    async def describe() -> JSONResponse:
        return await builds.get("", build)

    async def page() -> HTMLResponse:
        return HTMLResponse(_HTML)

    async def script() -> Response:
        return Response(script_text, media_type="text/javascript")

    app.add_api_route(paths.DESCRIPTION, describe, include_in_schema=False)
    app.add_api_route(paths.PAGE, page, include_in_schema=False)
    app.add_api_route(f"{paths.STATIC}/page.js", script, include_in_schema=False)
    files = StaticFiles(packages=[(fastapi_offline.__name__, "static")])
    app.mount(paths.STATIC, files, name="static")
    return app
