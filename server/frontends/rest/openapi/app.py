"""The description of the API and a page to read it and try it out, with nothing from elsewhere.

The page and what it is made of are the same on every server, so that a browser gets them without
an API key. What is served here is told by /openapi.json alone, and that wants one where the
models do: then the page asks for the key, which also fills in the box "Authorize" and is kept
nowhere but in the page.
"""

from html import escape
from typing import Any

import fastapi_offline
from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles
from starlette.responses import HTMLResponse

from server.dataplane import DataPlane
from server.frontends.rest.openapi import document

_PAGE = "/docs"
_STATIC = "/docs/static"
_DESCRIPTION = "/openapi.json"

PATHS = (_PAGE, _DESCRIPTION)
"""What the paths of it begin with."""
OPEN_PATHS = (
    _PAGE,
    *(
        f"{_STATIC}/{name}"
        for name in ("favicon.png", "swagger-ui-bundle.js", "swagger-ui.css", "page.js")
    ),
)
"""Those that tell nothing of what is served."""

_HTML = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{escape(document.TITLE)}</title>
<link rel="icon" href="{_STATIC}/favicon.png">
<link rel="stylesheet" href="{_STATIC}/swagger-ui.css">
</head>
<body>
<form id="key-form" hidden>
<label>This server wants an API key:
<input id="key" type="password" autocomplete="off"></label>
<button>Authorize</button>
</form>
<p id="refusal" role="alert"></p>
<div id="swagger-ui"></div>
<script src="{_STATIC}/swagger-ui-bundle.js"></script>
<script src="{_STATIC}/page.js"></script>
</body>
</html>
"""
_SCRIPT = f"""
const form = document.getElementById("key-form");
function refuse(why) {{
  document.getElementById("refusal").textContent = why;
}}
async function describe(key) {{
  const headers = key ? {{Authorization: "Bearer " + key}} : {{}};
  const reply = await fetch("{_DESCRIPTION}", {{headers}});
  form.hidden = reply.status !== 401;
  if (reply.status === 401) return refuse(key && "This is not a key of this server.");
  if (!reply.ok) return refuse(`{_DESCRIPTION}: ${{reply.status}} ${{await reply.text()}}`);
  refuse("");
  const ui = SwaggerUIBundle({{
    spec: await reply.json(),
    dom_id: "#swagger-ui",
    onComplete: () => key && ui.preauthorizeApiKey("{document.SECURITY}", key),
  }});
}}
function show(key) {{
  describe(key).catch((error) => refuse(`{_DESCRIPTION}: ${{error.message}}`));
}}
form.addEventListener("submit", (event) => {{
  event.preventDefault();
  show(document.getElementById("key").value.trim());
}});
show("");
"""


def build_openapi_app(dataplane: DataPlane, wants_keys: bool = False) -> FastAPI:
    """The application for `PATHS`; what it describes is what is served when it is asked."""
    app = FastAPI(title=document.TITLE, docs_url=None, redoc_url=None, openapi_url=_DESCRIPTION)

    def describe() -> dict[str, Any]:
        return document.describe(dataplane, wants_keys)

    async def page() -> HTMLResponse:
        return HTMLResponse(_HTML)

    async def script() -> HTMLResponse:
        return HTMLResponse(_SCRIPT, media_type="text/javascript")

    app.openapi = describe  # type: ignore[method-assign]
    app.add_api_route(_PAGE, page, include_in_schema=False)
    app.add_api_route(f"{_STATIC}/page.js", script, include_in_schema=False)
    files = StaticFiles(packages=[(fastapi_offline.__name__, "static")])
    app.mount(_STATIC, files, name="static")
    return app
