"""The ASGI application for all REST requests: checks API keys, and routes by path."""

import asyncio
import gzip
from functools import partial

from starlette.types import ASGIApp, Receive, Scope, Send

from server.admission.admission import AdmissionController
from server.admission.api_keys import ApiKeys
from server.dataplane import DataPlane
from server.frontends.rest import errors, origins
from server.frontends.rest import v2_paths as v2_paths
from server.frontends.rest.console import app as console_paths
from server.frontends.rest.console.app import ConsoleApp
from server.frontends.rest.dispatch.dispatcher import Dispatcher
from server.frontends.rest.openapi import paths as openapi_paths
from server.frontends.rest.rest_config import RestConfig
from server.frontends.rest.transport.responses import (
    JSON,
    METRICS_TEXT,
    TEXT,
    AnySyncResponse,
    Headers,
    Peer,
    Response,
    SyncHandler,
    accepts_gzip,
    get_header,
    not_found,
    send_response,
)
from server.frontends.rest.transport.shared_builds import SharedBuilds
from server.metrics import Metrics
from tpuserve.errors import ForeignRequest, Unauthenticated, Unavailable

HEALTH, READINESS = "/healthz", "/readyz"
METRICS = "/metrics"
"""The path at which Prometheus expects the metrics. A second path can be configured."""
_CORS_HEADERS = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"POST, GET"),
    (
        b"access-control-allow-headers",
        b"Content-Type, Content-Encoding, Authorization, Inference-Header-Content-Length, "
        b"traceparent, tracestate",
    ),
    (
        b"access-control-expose-headers",
        b"Inference-Header-Content-Length, Retry-After, WWW-Authenticate",
    ),
)


class RootApp:
    """The ASGI application that receives all REST requests.

    It checks API keys, answers health checks and requests for metrics, and adds CORS headers.

    Args:
      dispatcher: Answers the requests to the REST APIs, such as those below /v1/.
      dataplane: Tells whether a model is available, for the readiness check.
      openapi: Answers the requests for the OpenAPI document and its page, whose paths begin
        with one of `openapi.paths.PATHS`.
      console: The console, a web page for operators. It answers the requests to the root path
        and to paths below /console/.
      metrics: The registry that is served at /metrics and at `monitoring_path`, and in which
        requests without a valid API key are counted. None means that no metrics are served.
      keys: The accepted API keys. None disables authentication.
      admission: Tells whether the server is starting, ready or draining. None means that it is
        ready.
      monitoring_path: A second URL path at which the metrics are served. None means that there
        is none.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        dataplane: DataPlane,
        openapi: ASGIApp,
        console: ConsoleApp,
        config: RestConfig,
        *,
        metrics: Metrics | None = None,
        keys: ApiKeys | None = None,
        admission: AdmissionController | None = None,
        monitoring_path: str | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._dataplane = dataplane
        self._openapi = openapi
        self._console = console
        self._metrics = metrics
        self._keys = keys
        self._admission = admission
        self._metrics_paths = {METRICS, _strip(monitoring_path or METRICS)} if metrics else set()
        self._metrics_builds: SharedBuilds[bytes] = SharedBuilds()
        self._cors_headers = _CORS_HEADERS if config.allow_origins else ()
        self._open_console_paths = console_paths.OPEN_PATHS if console.is_enabled else ()
        self._health_route = _strip(config.health_route)
        self._may_be_empty = config.may_be_empty
        self._allowed_hosts = config.allowed_hosts
        self._open_paths = {
            *((HEALTH, READINESS, v2_paths.LIVE, v2_paths.READY) if config.open_health else ()),
            *(filter(None, [_strip(config.health_route)]) if config.open_health else ()),
            *(self._metrics_paths if config.open_metrics else ()),
        }

    def find_fast_path(self, url: bytes, headers: Headers) -> SyncHandler | None:
        """Return a function that answers a POST request directly in the event loop.

        Returns:
          The function. None if the request may take long, so that a thread must run it.
        """
        if self._admission is not None and (
            self._admission.startup_activity or self._admission.is_draining
        ):
            return None
        handler = self._dispatcher.find_fast_path(url)
        if handler is None or self._find_refusal(url.decode(), "POST", headers):
            return None
        return partial(self._add_cors_headers_to, handler) if self._cors_headers else handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request. Ignore ASGI scopes that are not HTTP requests."""
        await self.handle(scope, receive, send)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> Response | None:
        """Answer one request.

        Returns:
          The response that was sent. None if the OpenAPI application has sent the response itself,
          or if the scope is not an HTTP request.
        """
        if scope["type"] != "http":
            return None
        path = scope["raw_path"].decode("latin-1")
        if query := scope["query_string"]:
            path += "?" + query.decode("latin-1")
        response = self._authenticate(path, scope["method"], scope["headers"])
        if response is None:
            endpoint = _strip(path)
            if endpoint in (v2_paths.LIVE, v2_paths.READY):
                response = self._check_health(endpoint)
            elif endpoint == self._health_route:
                response = self._check_readiness()
                # SageMaker requires an empty body in the response to its health check.
                response = response._replace(body=b"") if response.status == 200 else response
            elif self._dispatcher.is_routed(path):
                response = self._refuse_while_starting()
                response = response or await self._dispatcher.dispatch(path, scope, receive)
            elif path.startswith(openapi_paths.PATHS):
                await self._openapi(scope, receive, send)
                return None
            elif self._console.is_routed(path):
                response = await self._console.answer(
                    path, scope["method"], scope["headers"], self._get_unready_reason
                )
            else:
                response = await self._answer_other_path(path, scope["method"], scope["headers"])
        response = self._add_cors_headers(response)
        await send_response(send, response)
        return response

    def close(self) -> None:
        """Stop the threads that run requests. Must be called after the last request."""
        self._dispatcher.close()

    def _add_cors_headers_to(
        self, handler: SyncHandler, headers: Headers, body: bytes, peer: Peer
    ) -> AnySyncResponse:
        response = handler(headers, body, peer)
        if isinstance(response, asyncio.Future):
            return asyncio.ensure_future(self._add_cors_headers_later(response))
        return None if response is None else self._add_cors_headers(response)

    async def _add_cors_headers_later(self, response: asyncio.Future[Response]) -> Response:
        try:
            return self._add_cors_headers(await response)
        except asyncio.CancelledError:
            if not response.cancelled():
                response.result().release()
            raise

    def _add_cors_headers(self, response: Response) -> Response:
        if not self._cors_headers:
            return response
        return response._replace(headers=(*response.headers, *self._cors_headers))

    def _authenticate(self, path: str, method: str, headers: Headers) -> Response | None:
        """Return the response to a request that `_find_refusal` refuses; None to accept it."""
        error = self._find_refusal(path, method, headers)
        if error is None:
            return None
        if self._metrics is not None and self._dispatcher.is_routed(path):
            # Count the request with an empty model name. Otherwise each model name that a client
            # without a key makes up would add a time series to the metrics.
            self._metrics.request_done("", "", "REST", error.code.name, 0)
            self._metrics.request_failed("", "REST", error.code.name, str(error))
        return errors.response_to_error(error)

    def _find_refusal(
        self, path: str, method: str, headers: Headers
    ) -> ForeignRequest | Unauthenticated | None:
        """Return why a request is refused: its Host is not allowed, or it has no valid API key."""
        if self._allowed_hosts:
            try:
                origins.check_host(headers, self._allowed_hosts)
            except ForeignRequest as error:
                return error
        if self._keys is None or _strip(path) in self._open_paths:
            return None
        if method == "GET" and path in (*openapi_paths.OPEN_PATHS, *self._open_console_paths):
            return None
        # Accept CORS preflight requests without a key, because browsers send no key with them.
        if method == "OPTIONS" and self._dispatcher.is_routed(path):
            return None
        authorization = get_header(headers, b"authorization")
        try:
            self._keys.authenticate(
                None if authorization is None else authorization.decode("latin-1")
            )
        except Unauthenticated as error:
            return error
        return None

    def _refuse_while_starting(self) -> Response | None:
        activity = self._admission.startup_activity if self._admission is not None else ""
        if not activity:
            return None
        return errors.response_to_error(
            Unavailable(f"the server is starting: {activity}. Send the request again later.")
        )

    def _check_health(self, path: str) -> Response:
        """Answer a liveness or a readiness check of the Open Inference Protocol."""
        if path == v2_paths.LIVE:
            return Response(200, b'{"live":true}', JSON)
        if self._get_unready_reason():
            return Response(503, b'{"ready":false}', JSON, self._readiness_headers())
        return Response(200, b'{"ready":true}', JSON)

    def _check_readiness(self) -> Response:
        reason = self._get_unready_reason()
        if reason:
            text = f"not ready: {reason}\n".encode()
            return Response(503, text, TEXT, self._readiness_headers())
        return Response(200, b"ready\n", TEXT)

    def _readiness_headers(self) -> Headers:
        is_draining = self._admission is not None and self._admission.is_draining
        return (errors.CLOSE,) if is_draining else ()

    async def _answer_other_path(self, path: str, method: str, headers: Headers) -> Response:
        endpoint = _strip(path)
        if endpoint == HEALTH:
            return Response(200, b"ok\n", TEXT)
        if endpoint == READINESS:
            return self._check_readiness()
        if endpoint in self._metrics_paths:
            if method not in ("GET", "HEAD"):
                return errors.error_response(400, f"Malformed request: {method} {path}")
            assert self._metrics is not None
            if not accepts_gzip(headers):
                text = await self._metrics_builds.get("text", self._metrics.exposition)
                return Response(200, text, METRICS_TEXT)
            text = await self._metrics_builds.get("gzip", self._compress_metrics)
            return Response(200, text, METRICS_TEXT, ((b"content-encoding", b"gzip"),))
        return not_found()

    def _compress_metrics(self) -> bytes:
        assert self._metrics is not None
        # The lines differ little: the fastest level makes a thirtieth of them.
        return gzip.compress(self._metrics.exposition(), compresslevel=1)

    def _get_unready_reason(self) -> str:
        """Return why the readiness check must fail; "" if the server is ready."""
        if self._admission is not None and self._admission.is_draining:
            return "the server is shutting down"
        if self._admission is not None and not self._admission.is_ready:
            activity = self._admission.startup_activity
            return f"the server is starting: {activity}" if activity else "the server is starting"
        is_ready = self._may_be_empty or self._dataplane.is_available
        return "" if is_ready else "no model is available"


def _strip(path: str) -> str:
    """Return a path without its query string and a slash at its end, which some probes add."""
    path = path.partition("?")[0]
    return path[:-1] if path[1:] and path[-1] == "/" else path
