"""Answers the requests for the console, and for the JSON index at the root path."""

import json
from collections.abc import Callable
from functools import cache, partial
from importlib import metadata, resources

from server.dataplane import DataPlane, ModelSpec
from server.frontends.rest import errors
from server.frontends.rest.console import forms, paths
from server.frontends.rest.console.status import StatusReporter
from server.frontends.rest.openapi import paths as openapi_paths
from server.frontends.rest.transport.headers import Headers, get_header
from server.frontends.rest.transport.responses import JSON, Response, not_found
from server.frontends.rest.transport.shared_builds import SharedBuilds
from server.metrics import Metrics

_PAGE = "index.html"
_HTML = b"text/html; charset=utf-8"
# The headers of the page and its files. Their Content-Security-Policy allows the page to load only
# files of this server, and no inline script or style.
_HEADERS: Headers = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
)
_NO_STORE: Headers = ((b"cache-control", b"no-store"),)


class ConsoleApp:
    """Serves the console: a web page for operators, its files, and the JSON that the page polls.

    Args:
      metrics: The registry in which requests are counted. None means that the page shows no
        counts.
    """

    def __init__(
        self,
        dataplane: DataPlane,
        metrics: Metrics | None,
        is_enabled: bool,
        monitoring_path: str | None = None,
    ) -> None:
        self.is_enabled = is_enabled
        self._dataplane = dataplane
        self._status = StatusReporter(dataplane, metrics)
        self._monitoring_path = monitoring_path
        self._builds: SharedBuilds[bytes] = SharedBuilds()

    def is_routed(self, path: str) -> bool:
        """Return whether the console answers a path, which may have a query string."""
        return path == paths.INDEX or (self.is_enabled and path.startswith(paths.PREFIX))

    async def answer(
        self, path: str, method: str, headers: Headers, unready_reason: Callable[[], str]
    ) -> Response:
        """Answer one request.

        Args:
          path: The path as sent, with the query string. `is_routed` must be true for it.
          unready_reason: Returns why the server is not ready; "" if it is ready.
        """
        if method not in ("GET", "HEAD"):
            return errors.error_response(400, f"Malformed request: {method} {path}")
        if path == paths.INDEX:
            if self.is_enabled and _accepts_html(headers):
                return _file_response(_PAGE, _HTML)
            return Response(200, _encode(self._index()), JSON)
        if path == paths.STATUS:
            build = partial(self._build_status, unready_reason)
            return Response(200, await self._builds.get(path, build), JSON, _NO_STORE)
        if path.startswith(paths.SIGNATURES + "?"):
            try:
                spec = forms.parse_query(path.partition("?")[2])
                body = await self._builds.get(spec, partial(self._build_forms, spec))
            except Exception as error:
                return errors.response_to_error(error)
            return Response(200, body, JSON, _NO_STORE)
        name = path.removeprefix(paths.STATIC)
        if name in paths.FILES:
            return _file_response(name, paths.FILES[name])
        return not_found()

    def _build_status(self, unready_reason: Callable[[], str]) -> bytes:
        return _encode(self._status.build(unready_reason()))

    def _build_forms(self, spec: ModelSpec) -> bytes:
        return _encode(forms.describe_version(self._dataplane, spec))

    def _index(self) -> dict[str, str]:
        links = {
            "models": "/v1/models",
            "open_inference": "/v2",
            "openapi": openapi_paths.DESCRIPTION,
            "docs": openapi_paths.PAGE,
            "health": "/healthz",
            "readiness": "/readyz",
        }
        if self._monitoring_path:
            links["metrics"] = self._monitoring_path
        return {"name": "tpuserve", "version": metadata.version("tpuserve"), **links}


def _accepts_html(headers: Headers) -> bool:
    accept = get_header(headers, b"accept")
    return accept is not None and b"text/html" in accept.lower()


def _file_response(name: str, content_type: bytes) -> Response:
    return Response(200, _read_file(name), content_type, _HEADERS)


@cache
def _read_file(name: str) -> bytes:
    return (resources.files(__package__) / "static" / name).read_bytes()


def _encode(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode(errors="replace")
