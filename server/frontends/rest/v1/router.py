"""Everything below /v1/, as one plain callable: what is asked most passes no framework."""

import time
from functools import partial

from starlette.types import Receive, Scope

from server.admission.admission import AdmissionController
from server.admission.nonblocking import WouldBlock
from server.dataplane import DataPlane, ModelSpec
from server.frontends.rest import errors
from server.frontends.rest.dispatch.adaptive_fast_path import AdaptiveFastPath
from server.frontends.rest.dispatch.workers import LatencyTracker, Workers
from server.frontends.rest.rest_config import RestConfig
from server.frontends.rest.transport import request_body
from server.frontends.rest.transport.fast_path_protocol import SyncHandler
from server.frontends.rest.transport.request_body import MemoryReservation, RequestBodyReader
from server.frontends.rest.transport.responses import JSON, Headers, Peer, Response
from server.frontends.rest.v1 import inference, models, paths
from server.frontends.rest.v1.paths import Route
from server.metrics import Metrics
from tpuserve.errors import Code, InvalidInput
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE

# Beyond so many paths in use how quick each is gets forgotten.
_MAX_PATHS = 1024


class Api:
    """Answers TensorFlow Serving's RESTful API, and counts what it answers."""

    def __init__(
        self,
        dataplane: DataPlane,
        options: RestConfig,
        metrics: Metrics | None = None,
        admission: AdmissionController | None = None,
    ) -> None:
        """Takes what to answer from; see `server.frontends.rest.app.build`."""
        self._dataplane = dataplane
        self._metrics = metrics
        self._admission = AdmissionController() if admission is None else admission
        self._timeout_ms = options.timeout_ms
        self._bodies = RequestBodyReader(options.max_request_bytes)
        self._is_batched = options.is_batched
        self._workers = Workers(options.threads, options.timeout_ms, not options.is_batched)
        self._paces: dict[Route, LatencyTracker] = {}
        self._at_once: dict[bytes, tuple[LatencyTracker, SyncHandler]] = {}

    def find(self, url: bytes) -> SyncHandler | None:
        """What answers the requests that are posted to a URL, where that is quick."""
        known = self._at_once.get(url)
        if known is None:
            try:
                route = paths.route("POST", url.decode("ascii"))
            except (InvalidInput, UnicodeDecodeError):
                return None
            # One path can be spelt in many ways.
            if len(self._at_once) >= _MAX_PATHS:
                self._at_once.clear()
            pace = self._pace(route)
            answer: SyncHandler = partial(self._infer_at_once, route, pace)
            known = pace, AdaptiveFastPath(answer, pace) if self._is_batched else answer
            self._at_once[url] = known
        pace, answer = known
        return answer if pace.is_quick else None

    async def answer(self, path: str, scope: Scope, receive: Receive) -> Response:
        """The reply to a request.

        Args:
          path: undecoded, with its query string.
        """
        method = scope["method"]
        started = time.perf_counter_ns()
        route = _NO_ROUTE
        if method == "OPTIONS":
            reply = _preflight(scope)
            self._count(route, reply.code, started)
            return reply
        try:
            route = paths.route(method, path)
            if method == "POST":
                reply = await self._infer(route, scope, receive)
            else:
                look_up = partial(self._look_up, route)
                reply = await self._workers.run(look_up, 0, self._pace(route))
        except Exception as error:
            reply = _about(route, errors.response_to_error(error))
        self._count(route, reply.code, started)
        return reply

    def close(self) -> None:
        """Lets go of its threads."""
        self._workers.close()

    async def _infer(self, route: Route, scope: Scope, receive: Receive) -> Response:
        room = self._bodies.room()
        try:
            length, is_gzip = request_body.content(scope["headers"])
            body = await self._bodies.read(receive, length, room)
            self._admission.acquire()
        except BaseException:
            room.free()
            raise
        work = partial(self._infer_body, route, body, is_gzip, room, time.monotonic())
        # What is inflated may be of any size.
        size = self._bodies.max_inflated_bytes if is_gzip else len(body)
        dropped = partial(self._leave, room)
        return await self._workers.run(work, size, self._pace(route), dropped)

    def _infer_body(
        self, route: Route, body: bytes, is_gzip: bool, room: MemoryReservation, asked: float
    ) -> Response:
        try:
            if is_gzip:
                body = self._bodies.gunzip(body, room)
            return self._answer(route, body, time.monotonic() - asked)
        except Exception as error:
            return _about(route, errors.response_to_error(error))
        finally:
            # In flight until here, even if nobody waits for the answer any more.
            self._leave(room)

    def _leave(self, room: MemoryReservation) -> None:
        self._admission.release()
        room.free()

    def _infer_at_once(
        self, route: Route, pace: LatencyTracker, headers: Headers, body: bytes, peer: Peer
    ) -> Response | None:
        for name, _ in headers:
            if name == b"content-encoding":
                return None
        started = time.perf_counter_ns()
        try:
            self._admission.acquire()
            try:
                reply = self._answer(route, body)
            finally:
                self._admission.release()
        except WouldBlock:
            raise
        except Exception as error:
            reply = _about(route, errors.response_to_error(error))
        elapsed_ns = time.perf_counter_ns() - started
        pace.record(elapsed_ns / 1e9)
        if self._metrics is not None:
            self._metrics.request_done(
                route.model, route.verb, "REST", reply.code, elapsed_ns // 1000
            )
        return reply

    def _answer(self, route: Route, body: bytes, waited_seconds: float = 0) -> Response:
        signature = ""
        timeout_ms: float | None = self._timeout_ms
        if timeout_ms is not None:
            timeout_ms = max(1, timeout_ms - waited_seconds * 1000)
        try:
            request, named = inference.read(body)
            signature = named or DEFAULT_SIGNATURE
            target = ModelSpec(route.model, route.version, signature, route.label)
            answer = inference.ANSWERS[route.verb]
            written, version = answer(self._dataplane, target, request, timeout_ms)
        except WouldBlock:
            raise
        except Exception as error:
            return _about(route, errors.response_to_error(error), signature)
        return Response(200, written, JSON, (), "OK", route.model, version, signature)

    def _look_up(self, route: Route) -> Response:
        return _about(route, Response(200, self._describe(route)))

    def _describe(self, route: Route) -> bytes:
        if route.verb == "metadata":
            if not route.model:
                raise InvalidInput("Missing model name in request.")
            target = ModelSpec(route.model, route.version, label=route.label)
            return models.encode_metadata(self._dataplane.metadata(target, ["signature_def"]))
        if route.model:
            # A label counts for nothing here, as in TensorFlow Serving.
            return models.encode_status(self._dataplane.status(route.model, route.version))
        if route.version is not None or route.label is not None:
            raise InvalidInput("Missing model name in request.")
        return models.encode_list(self._dataplane.list_models())

    def _count(self, route: Route, code: str, started: int) -> None:
        if self._metrics is not None:
            api = "" if route.verb in ("status", "metadata") else route.verb
            latency_us = (time.perf_counter_ns() - started) // 1000
            self._metrics.request_done(route.model, api, "REST", code, latency_us)

    def _pace(self, route: Route) -> LatencyTracker:
        pace = self._paces.get(route)
        if pace is None:
            if len(self._paces) >= _MAX_PATHS:
                self._paces.clear()
                self._at_once.clear()
            pace = self._paces[route] = LatencyTracker()
        return pace


# What a path is counted as that names nothing.
_NO_ROUTE = Route("", None, None, "")


def _about(route: Route, reply: Response, signature: str = "") -> Response:
    return reply._replace(model=route.model, version=route.version, signature=signature)


def _preflight(scope: Scope) -> Response:
    # What a browser asks before it sends a page's request to another origin.
    origins = [value for name, value in scope["headers"] if name == b"origin"]
    is_web = any(b"http://" in each or b"https://" in each for each in origins)
    if is_web:
        return Response(200, b"", JSON)
    return Response(400, b"", JSON, code=Code.FAILED_PRECONDITION.name)
