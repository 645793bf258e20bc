"""Runs the handlers of all REST APIs in the event loop or in threads.

The dispatcher adds admission control, limits on bodies and times, metrics and traces.
"""

import asyncio
import math
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from starlette.types import Receive, Scope

from server.admission.admission import AdmissionController, network_of_host
from server.admission.cancellation import Cancellation
from server.admission.latency_tracker import MAX_INLINE_BYTES, LatencyTracker
from server.admission.memory_budget import MemoryBudget, MemoryReservation
from server.admission.nonblocking import NonBlocking, WouldBlock
from server.frontends.rest import errors, origins
from server.frontends.rest.dispatch.fair_deliveries import FairDeliveries
from server.frontends.rest.dispatch.path_cache import MAX_STORED_PATH, MAX_STORED_PATHS
from server.frontends.rest.dispatch.router import Route, Router
from server.frontends.rest.dispatch.workers import Workers
from server.frontends.rest.rest_config import RestConfig
from server.frontends.rest.transport.request_body import (
    RequestBodyReader,
    gunzip,
    join_chunks,
    parse_body_headers,
)
from server.frontends.rest.transport.responses import (
    JSON,
    AnySyncResponse,
    Headers,
    Peer,
    Response,
    SyncHandler,
    get_header,
)
from server.metrics import Metrics
from server.metrics.timeline import Timeline
from server.process.logs import TRACE
from server.request import CLOCK, RequestContext
from server.scheduling.request_queues import RequestQueues
from server.servables.pending import Pending
from tpuserve.errors import Code, TpuserveError

if TYPE_CHECKING:
    from server.telemetry.tracing import Tracing

_UNKNOWN_ROUTE = Route()
_RUN, _WAIT = NonBlocking(), NonBlocking(may_run=False)

Result = TypeVar("Result")
Sender: TypeAlias = tuple[str, str, Headers, Peer]
"""The method, the path as sent, the headers and the client of a request."""


class Dispatcher:
    """Answers the requests to all REST APIs: passes each to the router of its API.

    The handlers of the routers run in the event loop if they are quick, and otherwise in threads.

    Args:
      metrics: The registry in which requests are counted. None means no metrics.
      admission: Limits the number of requests in flight. None means no limit.
      memory_budget: Limits the memory of all requests together. None means no limit.
      queues: The queue of each model, in which requests wait until they may run. None means
        queues that no other frontend shares.
      on_close: A function that `close` calls after it has stopped the threads.
      tracing: Records the requests as spans. None means no traces.
    """

    def __init__(
        self,
        routers: Sequence[Router],
        config: RestConfig,
        metrics: Metrics | None = None,
        admission: AdmissionController | None = None,
        memory_budget: MemoryBudget | None = None,
        queues: RequestQueues | None = None,
        on_close: Callable[[], object] = lambda: None,
        tracing: "Tracing | None" = None,
    ) -> None:
        self._tracing = tracing
        self._scheme = config.scheme
        self._allowed_hosts = config.allowed_hosts
        self._on_close = on_close
        self._routers = tuple(routers)
        self._metrics = metrics
        self._admission = AdmissionController() if admission is None else admission
        # In seconds; infinite for no limit.
        self._time_limit = math.inf if config.timeout_ms is None else config.timeout_ms / 1000
        self._memory_budget = MemoryBudget(sys.maxsize) if memory_budget is None else memory_budget
        self._bodies = RequestBodyReader(config.max_request_bytes)
        self._workers = Workers(config.threads, queues)
        self._deliveries: FairDeliveries | None = None
        # The latencies of routes, and the handlers of paths. When either has MAX_STORED_PATHS
        # entries, all its entries are discarded.
        self._trackers: dict[tuple[str, Route], LatencyTracker] = {}
        self._fast_paths: dict[bytes, tuple[LatencyTracker, str, SyncHandler]] = {}

    def is_routed(self, path: str) -> bool:
        """Return whether a path belongs to a REST API, so that `dispatch` can answer it."""
        return self._find_router(path) is not None

    def find_fast_path(self, url: bytes) -> SyncHandler | None:
        """Return a function that answers POST requests to a URL directly in the event loop.

        Returns:
          The function. None if a POST request to the URL runs no model, if requests to the URL may
          take long, so that they must run in a thread, or if the URL is very long.
        """
        if len(url) > MAX_STORED_PATH:
            return None
        fast_path = self._fast_paths.get(url)
        if fast_path is None:
            fast_path = self._build_fast_path(url)
            if fast_path is None:
                return None
            # Limit the number of cached handlers: clients could send a path in many percent-encoded
            # spellings, and so fill the memory.
            if len(self._fast_paths) >= MAX_STORED_PATHS:
                self._fast_paths.clear()
            self._fast_paths[url] = fast_path
        tracker, model, handler = fast_path
        return handler if tracker.is_quick or self._workers.only_waits(model) else None

    async def dispatch(self, path: str, scope: Scope, receive: Receive) -> Response:
        """Answer a request whose path belongs to one of the REST APIs."""
        timeline = Timeline()
        method, headers = scope["method"], scope["headers"]
        route = _UNKNOWN_ROUTE
        self._enter_trace(timeline, headers)
        try:
            router = self._find_router(path)
            assert router is not None
            if method == "OPTIONS":
                response = _answer_preflight(headers)
            else:
                route = router.parse_route(method, path)
                if route.changes_models:
                    origins.check_change(headers, self._allowed_hosts)
                if route.runs_model or route.has_body:
                    response = await self._run_model(router, route, path, scope, receive, timeline)
                else:
                    response = await self._describe(router, route, path, headers, timeline)
        except Exception as error:
            response = _to_response(error, route)
        return self._record(route, response, timeline, (method, path, headers, scope.get("client")))

    def close(self) -> None:
        """Stop the thread pools. Must be called after the last request."""
        self._workers.close()
        self._on_close()

    def _find_router(self, path: str) -> Router | None:
        for router in self._routers:
            if path[: len(router.prefix)].lower() == router.prefix:
                return router
        return None

    async def _describe(
        self, router: Router, route: Route, path: str, headers: Headers, timeline: Timeline
    ) -> Response:
        """Answer a request that has no body and runs no model."""
        model = self._workers.find_description_queue(route.model) if route.describes_model else ""
        context = RequestContext(self._deadline(), timeline=timeline, model=model)
        work = self._keep_trace(partial(router.handle, route, headers, b"", context))
        try:
            if route.changes_models:
                result = await self._workers.run_change(context, work)
            else:
                tracker = self._get_tracker(router, route, path)
                result = await self._workers.run(context, work, 0, tracker)
            return result.finish() if isinstance(result, Pending) else result
        finally:
            CLOCK.unwatch(context)

    async def _run_model(
        self,
        router: Router,
        route: Route,
        path: str,
        scope: Scope,
        receive: Receive,
        timeline: Timeline,
    ) -> Response:
        headers, peer = scope["headers"], _network_of(scope.get("client"))
        chunks, is_gzip, reservation = await self._admit(receive, headers, peer)
        # Assume the largest size for a body that is compressed still: it is not small, and must be
        # decompressed in a thread.
        size = self._bodies.max_decompressed_bytes if is_gzip else sum(map(len, chunks))
        tracker = self._get_tracker(router, route, path)
        timeline.queued_ns = time.perf_counter_ns()
        context = RequestContext(
            self._deadline(), Cancellation(), timeline, reservation, peer, route.model
        )
        release = partial(self._release, context)
        handle = partial(router.handle, route, headers)
        work = self._keep_trace(
            partial(self._handle_body, handle, chunks, is_gzip, context, release)
        )
        watcher: asyncio.Future[None] | None = None

        def watch_for_disconnect() -> None:
            nonlocal watcher
            watcher = asyncio.ensure_future(_cancel_on_disconnect(receive, context))

        try:
            if route.changes_models:
                answer = await self._workers.run_change(context, work, release)
            else:
                answer = await self._workers.run(
                    context, work, size, tracker, release, watch_for_disconnect
                )
            if isinstance(answer, Pending):
                return await self._finish_later(answer, context)
            return answer
        except BaseException:
            # Stop the function that handles the request: its result is not needed any more.
            context.cancellation.cancel()
            raise
        finally:
            CLOCK.unwatch(context)
            if watcher is not None:
                watcher.cancel()

    def _deadline(self) -> float:
        return time.monotonic() + self._time_limit

    async def _admit(
        self, receive: Receive, headers: Headers, peer: str
    ) -> tuple[list[bytes], bool, MemoryReservation]:
        """Read the body of a request, and count the request as in flight."""
        # If the server drains, refuse the request before its body is read, because the body can
        # take long to arrive.
        self._admission.raise_if_draining()
        reservation = self._memory_budget.reserve()
        try:
            length, is_gzip = parse_body_headers(headers)
            chunks = await self._bodies.read(receive, length, reservation)
            small = self._bodies.gunzip_small(chunks) if is_gzip else None
            if small is not None:
                reservation.grow(len(small))
                chunks, is_gzip = [small], False
            self._admission.acquire(peer)
        except BaseException:
            reservation.release()
            raise
        return chunks, is_gzip, reservation

    def _handle_body(
        self,
        handle: Callable[[bytes, RequestContext], Response | Pending[Response]],
        chunks: list[bytes],
        is_gzip: bool,
        context: RequestContext,
        release: Callable[[], object],
    ) -> Response | Pending[Response]:
        context.timeline.begin_decoding()
        try:
            context.check()
            assert context.memory is not None
            body = join_chunks(chunks, context.memory)
            chunks.clear()
            if is_gzip:
                body = gunzip(
                    body, self._bodies.max_decompressed_bytes, context.reserve, context.check
                )
            response = handle(body, context)
        except BaseException:
            release()
            raise
        if not isinstance(response, Pending):
            # Count the request as ended, and release its memory, only now that the model has run,
            # even if the client disconnected earlier: the request has used processor and memory
            # until now.
            release()
            return response
        finish = response.finish

        def finish_and_release() -> Response:
            try:
                return finish()
            finally:
                release()

        return response.then(finish_and_release)

    def _release(self, context: RequestContext) -> None:
        self._admission.release(context.peer)
        if context.memory is not None:
            context.memory.release()

    def _build_fast_path(self, url: bytes) -> tuple[LatencyTracker, str, SyncHandler] | None:
        try:
            path = url.decode("ascii")
            router = self._find_router(path)
            route = _UNKNOWN_ROUTE if router is None else router.parse_route("POST", path)
        except (TpuserveError, UnicodeDecodeError):
            return None
        if router is None or not route.runs_model:
            return None
        tracker = self._get_tracker(router, route, path)
        handler = partial(self._handle_synchronously, router, route, path, tracker)
        return tracker, route.model, handler

    def _handle_synchronously(
        self,
        router: Router,
        route: Route,
        path: str,
        tracker: LatencyTracker,
        headers: Headers,
        body: bytes,
        peer: Peer,
    ) -> AnySyncResponse:
        if get_header(headers, b"content-encoding") is not None:
            return None
        is_batched = self._workers.only_waits(route.model)
        if len(body) > MAX_INLINE_BYTES and not is_batched:
            return None
        context = RequestContext(self._deadline(), peer=_network_of(peer), model=route.model)
        ticket = self._workers.begin_inline(context)
        if ticket is None:
            return None
        # The event loop runs requests of all connections, so each needs a context of its own.
        run = self._keep_trace(
            partial(self._run_inline, context, router, route, path, tracker, headers, body, peer)
        )
        try:
            if not is_batched:
                return run()
            # A request that must not wait or run here is parsed again in a thread.
            with _RUN if tracker.is_quick and len(body) <= MAX_INLINE_BYTES else _WAIT:
                return run()
        except WouldBlock:
            return None
        finally:
            self._workers.end_inline(ticket)

    def _run_inline(
        self,
        context: RequestContext,
        router: Router,
        route: Route,
        path: str,
        tracker: LatencyTracker,
        headers: Headers,
        body: bytes,
        peer: Peer,
    ) -> AnySyncResponse:
        timeline = context.timeline
        sender = ("POST", path, headers, peer)
        self._enter_trace(timeline, headers)
        try:
            self._admission.acquire(context.peer)
        except Exception as error:
            response = _to_response(error, route)
        else:
            result: Response | Pending[Response]
            try:
                result = router.handle(route, headers, body, context)
            except WouldBlock:
                self._admission.release(context.peer)
                raise
            except Exception as error:
                result = _to_response(error, route)
            if isinstance(result, Pending):
                finish = self._keep_trace(
                    partial(self._finish_pending, context, result.finish, route, tracker, sender)
                )
                return self._finish_later(result.then(finish), context)
            response = result
            CLOCK.unwatch(context)
            self._admission.release(context.peer)
        response = self._record(route, response, timeline, sender)
        tracker.record(timeline.total_seconds, is_ok=not response.error)
        return response

    def _finish_pending(
        self,
        context: RequestContext,
        finish: Callable[[], Response],
        route: Route,
        tracker: LatencyTracker,
        sender: Sender,
    ) -> Response:
        timeline = context.timeline
        try:
            response = finish()
        except Exception as error:
            response = _to_response(error, route)
        finally:
            CLOCK.unwatch(context)
            self._admission.release(context.peer)
        response = self._record(route, response, timeline, sender)
        if not tracker.is_quick:
            tracker.record(timeline.total_seconds, is_ok=not response.error)
        return response

    def _finish_later(
        self, pending: Pending[Response], context: RequestContext
    ) -> asyncio.Future[Response]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Response] = loop.create_future()

        def deliver() -> None:
            if pending.is_large:
                self._workers.run_soon(finish_in_thread)
            else:
                complete(pending.finish())

        def finish_in_thread() -> None:
            response = pending.finish()
            # Ignore the error that the event loop is closed: the server has stopped.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(complete, response)

        def complete(response: Response) -> None:
            if future.done():
                response.release()
            else:
                future.set_result(response)

        def cancel_with_future(future: asyncio.Future[Response]) -> None:
            if future.cancelled():
                context.cancellation.cancel()

        future.add_done_callback(cancel_with_future)
        CLOCK.watch(context)

        deliveries = self._deliveries
        if deliveries is None or deliveries.loop is not loop:
            deliveries = self._deliveries = FairDeliveries(loop)
        pending.add_done_callback(partial(deliveries.deliver, context.model, deliver))
        return future

    def _enter_trace(self, timeline: Timeline, headers: Headers) -> None:
        """Let the lines that the present context logs have the IDs of a request's trace."""
        if self._tracing is not None:
            TRACE.set(partial(self._tracing.find_ids, timeline, headers))

    def _keep_trace(self, work: Callable[..., Result]) -> Callable[..., Result]:
        """Return a function that runs in the present context, also in another thread."""
        return work if self._tracing is None else partial(copy_context().run, work)

    def _record(
        self, route: Route, response: Response, timeline: Timeline, sender: Sender
    ) -> Response:
        """Record a request that has ended, and return its response with the IDs of its trace."""
        timeline.end()
        timeline.model = timeline.model or route.model
        if self._tracing is not None:
            method, path, headers, peer = sender
            self._tracing.record_http(
                timeline,
                method=method,
                route=route.template,
                path=path,
                scheme=self._scheme,
                status=response.status,
                headers=headers,
                peer=peer[0] if peer else "",
                runs_model=route.runs_model,
            )
            response = response._replace(trace=self._tracing.find_ids(timeline, headers))
        if self._metrics is None:
            return response
        api = route.operation if route.runs_model else ""
        self._metrics.request_done(
            route.model, api, "REST", response.code, timeline.total_seconds * 1e6
        )
        if response.error:
            self._metrics.request_failed(route.model, "REST", response.code, response.error)
        if route.runs_model:
            self._metrics.request_ended(timeline, response.code)
        return response

    def _get_tracker(self, router: Router, route: Route, path: str) -> LatencyTracker:
        if len(path) > MAX_STORED_PATH:
            # A tracker without latencies lets the request run in a thread.
            return LatencyTracker()
        key = router.prefix, route
        tracker = self._trackers.get(key)
        if tracker is None:
            if len(self._trackers) >= MAX_STORED_PATHS:
                self._trackers.clear()
                self._fast_paths.clear()
            tracker = self._trackers[key] = LatencyTracker()
        return tracker


def _network_of(peer: Peer) -> str:
    return "" if peer is None else network_of_host(peer[0])


async def _cancel_on_disconnect(receive: Receive, context: RequestContext) -> None:
    """Wait until the client of a request closes the connection, and then cancel the request."""
    while (await receive())["type"] != "http.disconnect":
        pass
    context.cancellation.cancel()


def _to_response(error: Exception, route: Route) -> Response:
    response = errors.response_to_error(error)
    return response._replace(model=route.model, version=route.version)


def _answer_preflight(headers: Headers) -> Response:
    origins = [value for name, value in headers if name == b"origin"]
    if any(b"http://" in origin or b"https://" in origin for origin in origins):
        return Response(200, b"", JSON)
    return Response(400, b"", JSON, code=Code.FAILED_PRECONDITION.name)
