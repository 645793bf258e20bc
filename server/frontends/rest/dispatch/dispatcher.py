"""Applies admission control, body limits, time limits, threads and metrics to all routers."""

import time
from collections.abc import Sequence
from functools import partial

from starlette.types import Receive, Scope

from server.admission.admission import AdmissionController
from server.admission.nonblocking import WouldBlock
from server.frontends.rest import errors
from server.frontends.rest.dispatch.adaptive_fast_path import AdaptiveFastPath
from server.frontends.rest.dispatch.router import Route, Router
from server.frontends.rest.dispatch.workers import LatencyTracker, Workers
from server.frontends.rest.rest_config import RestConfig
from server.frontends.rest.transport.headers import Headers, Peer, get_header
from server.frontends.rest.transport.request_body import (
    MemoryReservation,
    RequestBodyReader,
    parse_body_headers,
)
from server.frontends.rest.transport.responses import JSON, Response, SyncHandler
from server.metrics import Metrics
from tpuserve.errors import Code, TpuserveError

# The largest number of routes whose latencies are kept. When it is reached, the latencies of all
# routes are discarded, so that clients that send ever new paths do not fill the memory.
_MAX_ROUTES = 1024
_UNKNOWN_ROUTE = Route()


class Dispatcher:
    """Answers the requests to all routers, in the event loop or in a thread pool."""

    def __init__(
        self,
        routers: Sequence[Router],
        config: RestConfig,
        metrics: Metrics | None = None,
        admission: AdmissionController | None = None,
    ) -> None:
        """Create a dispatcher; see `server.frontends.rest.app.build_rest_app`."""
        self._routers = tuple(routers)
        self._metrics = metrics
        self._admission = AdmissionController() if admission is None else admission
        self._timeout_ms = config.timeout_ms
        self._bodies = RequestBodyReader(config.max_request_bytes)
        self._is_batched = config.is_batched
        self._workers = Workers(config.threads, config.timeout_ms, not config.is_batched)
        self._trackers: dict[tuple[str, Route], LatencyTracker] = {}
        self._fast_paths: dict[bytes, tuple[LatencyTracker, SyncHandler]] = {}

    def is_routed(self, path: str) -> bool:
        """Return whether `dispatch` answers a path: whether the path has the prefix of a router."""
        return self._find_router(path) is not None

    def find_fast_path(self, url: bytes) -> SyncHandler | None:
        """Return a function that answers POST requests to a URL directly in the event loop.

        Returns:
          None if requests to the URL may take long, so that they must run in a thread.
        """
        fast_path = self._fast_paths.get(url)
        if fast_path is None:
            fast_path = self._build_fast_path(url)
            if fast_path is None:
                return None
            # Limit the number of cached handlers: clients may send many percent-encoded spellings
            # of a path, which must not fill the memory.
            if len(self._fast_paths) >= _MAX_ROUTES:
                self._fast_paths.clear()
            self._fast_paths[url] = fast_path
        tracker, handler = fast_path
        return handler if tracker.is_quick else None

    async def dispatch(self, path: str, scope: Scope, receive: Receive) -> Response:
        """Answer a request whose path begins with the prefix of a router.

        Args:
          path: The path as sent, percent-encoded and with the query string.
          scope: The ASGI scope of the request.
          receive: The ASGI channel of the request.
        """
        started_ns = time.perf_counter_ns()
        method, headers = scope["method"], scope["headers"]
        route = _UNKNOWN_ROUTE
        try:
            router = self._find_router(path)
            assert router is not None
            if method == "OPTIONS":
                response = _answer_preflight(headers)
            else:
                route = router.parse_route(method, path)
                if route.runs_model:
                    response = await self._run_model(router, route, headers, receive)
                else:
                    work = partial(router.handle, route, headers, b"", timeout_ms=self._timeout_ms)
                    response = await self._workers.run(work, 0, self._get_tracker(router, route))
        except Exception as error:
            response = _to_response(error, route)
        self._record(route, response, time.perf_counter_ns() - started_ns)
        return response

    def close(self) -> None:
        """Stop the thread pool. Call after the last request."""
        self._workers.close()

    def _find_router(self, path: str) -> Router | None:
        for router in self._routers:
            if path[: len(router.prefix)].lower() == router.prefix:
                return router
        return None

    async def _run_model(
        self, router: Router, route: Route, headers: Headers, receive: Receive
    ) -> Response:
        reservation = self._bodies.reserve()
        try:
            length, is_gzip = parse_body_headers(headers)
            body = await self._bodies.read(receive, length, reservation)
            self._admission.acquire()
        except BaseException:
            reservation.release()
            raise
        handle = partial(router.handle, route, headers)
        work = partial(self._handle_body, handle, body, is_gzip, reservation, time.monotonic())
        # The size after decompression is not known yet, so assume the largest size. Large requests
        # run in a thread.
        size = self._bodies.max_decompressed_bytes if is_gzip else len(body)
        on_dropped = partial(self._release, reservation)
        return await self._workers.run(work, size, self._get_tracker(router, route), on_dropped)

    def _handle_body(
        self,
        handle: "partial[Response]",
        body: bytes,
        is_gzip: bool,
        reservation: MemoryReservation,
        received_at: float,
    ) -> Response:
        try:
            if is_gzip:
                body = self._bodies.gunzip(body, reservation)
            timeout_ms: float | None = self._timeout_ms
            if timeout_ms is not None:
                timeout_ms = max(1, timeout_ms - (time.monotonic() - received_at) * 1000)
            return handle(body, timeout_ms=timeout_ms)
        finally:
            # Release the admission slot and the memory only now, when the model has run, even if
            # the client has disconnected earlier.
            self._release(reservation)

    def _release(self, reservation: MemoryReservation) -> None:
        self._admission.release()
        reservation.release()

    def _build_fast_path(self, url: bytes) -> tuple[LatencyTracker, SyncHandler] | None:
        try:
            path = url.decode("ascii")
            router = self._find_router(path)
            route = _UNKNOWN_ROUTE if router is None else router.parse_route("POST", path)
        except (TpuserveError, UnicodeDecodeError):
            return None
        if router is None or not route.runs_model:
            return None
        tracker = self._get_tracker(router, route)
        handler: SyncHandler = partial(self._handle_synchronously, router, route, tracker)
        # With batching, the handler may have to wait for a batch to fill. `AdaptiveFastPath` then
        # returns None, so that the request runs in a thread.
        return tracker, AdaptiveFastPath(handler, tracker) if self._is_batched else handler

    def _handle_synchronously(
        self,
        router: Router,
        route: Route,
        tracker: LatencyTracker,
        headers: Headers,
        body: bytes,
        peer: Peer,
    ) -> Response | None:
        if get_header(headers, b"content-encoding") is not None:
            return None
        started_ns = time.perf_counter_ns()
        try:
            self._admission.acquire()
            try:
                response = router.handle(route, headers, body, timeout_ms=self._timeout_ms)
            finally:
                self._admission.release()
        except WouldBlock:
            raise
        except Exception as error:
            response = _to_response(error, route)
        elapsed_ns = time.perf_counter_ns() - started_ns
        tracker.record(elapsed_ns / 1e9)
        self._record(route, response, elapsed_ns)
        return response

    def _record(self, route: Route, response: Response, elapsed_ns: int) -> None:
        if self._metrics is not None:
            api = route.operation if route.runs_model else ""
            self._metrics.request_done(route.model, api, "REST", response.code, elapsed_ns // 1000)

    def _get_tracker(self, router: Router, route: Route) -> LatencyTracker:
        key = router.prefix, route
        tracker = self._trackers.get(key)
        if tracker is None:
            if len(self._trackers) >= _MAX_ROUTES:
                self._trackers.clear()
                self._fast_paths.clear()
            tracker = self._trackers[key] = LatencyTracker()
        return tracker


def _to_response(error: Exception, route: Route) -> Response:
    response = errors.response_to_error(error)
    return response._replace(model=route.model, version=route.version)


def _answer_preflight(headers: Headers) -> Response:
    """Answer the CORS request that a browser sends before a page's request to another origin."""
    origins = [value for name, value in headers if name == b"origin"]
    if any(b"http://" in origin or b"https://" in origin for origin in origins):
        return Response(200, b"", JSON)
    return Response(400, b"", JSON, code=Code.FAILED_PRECONDITION.name)
