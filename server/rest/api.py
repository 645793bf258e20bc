"""Everything below /v1/, as one plain ASGI callable: what is asked most passes no framework."""

import time
from functools import partial

from starlette.types import Receive, Scope

from server.dataplane import DataPlane, Target
from server.limits import Limits
from server.metrics import Metrics
from server.rest import bodies, errors, inference, models, paths
from server.rest.options import Options
from server.rest.paths import Route
from server.rest.replies import JSON, Reply
from server.rest.workers import Pace, Workers, timed
from tpuserve.errors import InvalidInput, TpuserveError

# Beyond so many paths in use how quick each is gets forgotten.
_MAX_PATHS = 1024


class Api:
    """Answers TensorFlow Serving's RESTful API."""

    def __init__(
        self,
        dataplane: DataPlane,
        options: Options,
        metrics: Metrics | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Takes what to answer from; see `server.rest.app.build`."""
        self._dataplane = dataplane
        self._metrics = metrics
        self._limits = limits
        self._timeout_ms = options.timeout_ms
        self._bodies = bodies.Bodies(options.max_request_bytes)
        self._max_inflated = min(options.max_request_bytes, bodies.MAX_INFLATED_BYTES)
        self._workers = Workers(options.threads, options.timeout_ms, not options.is_batched)
        self._paces: dict[Route, Pace] = {}

    async def answer(self, path: str, scope: Scope, receive: Receive) -> Reply:
        """The reply to a request.

        Args:
          path: undecoded, with its query string.
        """
        try:
            method = scope["method"]
            if method == "OPTIONS":
                return _preflight(scope)
            route = paths.route(method, path)
            if method == "POST":
                return await self._infer(route, scope, receive)
            return await self._workers.run(partial(self._look_up, route), 0, self._pace(route))
        except Exception as error:
            return errors.reply_to(error)

    def close(self) -> None:
        """Lets go of its threads."""
        self._workers.close()

    async def _infer(self, route: Route, scope: Scope, receive: Receive) -> Reply:
        try:
            length, is_gzip = bodies.content(scope["headers"])
            body = await self._bodies.read(receive, length)
            if self._limits is not None:
                self._limits.enter()
        except TpuserveError as error:
            self._count(route, error.code.name, 0)
            raise
        # What is inflated may be of any size.
        size = self._max_inflated if is_gzip else len(body)
        pace = self._pace(route)
        if self._workers.is_inline(size, pace):
            return Reply(200, timed(pace, self._infer_body, route, body, is_gzip))
        work = partial(self._infer_body, route, body, is_gzip)
        return Reply(200, await self._workers.run(work, size, pace))

    def _infer_body(self, route: Route, body: bytes, is_gzip: bool) -> bytes:
        try:
            if is_gzip:
                body = bodies.inflate(body, self._max_inflated)
            try:
                request, signature_name = inference.read(body)
            except InvalidInput as error:
                # The data plane, which counts requests, never hears of this one.
                self._count(route, error.code.name, 0)
                raise
            return inference.answer(
                self._dataplane, route, request, signature_name, self._timeout_ms
            )
        finally:
            # In flight until here, even if nobody waits for the answer any more.
            if self._limits is not None:
                self._limits.leave()

    def _look_up(self, route: Route) -> Reply:
        started = time.perf_counter_ns()
        try:
            body = self._describe(route)
        except TpuserveError as error:
            self._count(route, error.code.name, 0)
            raise
        self._count(route, "OK", (time.perf_counter_ns() - started) // 1000)
        return Reply(200, body)

    def _describe(self, route: Route) -> bytes:
        if route.verb == "metadata":
            if not route.model:
                raise InvalidInput("Missing model name in request.")
            target = Target(route.model, route.version, label=route.label)
            return models.encode_metadata(self._dataplane.metadata(target, ["signature_def"]))
        if route.model:
            # A label counts for nothing here, as in TensorFlow Serving.
            return models.encode_status(self._dataplane.status(route.model, route.version))
        if route.version is not None or route.label is not None:
            raise InvalidInput("Missing model name in request.")
        return models.encode_list(self._dataplane.models())

    def _count(self, route: Route, status: str, latency_us: float) -> None:
        if self._metrics is not None:
            api = "" if route.verb in ("status", "metadata") else route.verb
            self._metrics.request_done(route.model, api, "REST", status, latency_us)

    def _pace(self, route: Route) -> Pace:
        pace = self._paces.get(route)
        if pace is None:
            if len(self._paces) >= _MAX_PATHS:
                self._paces.clear()
            pace = self._paces[route] = Pace()
        return pace


def _preflight(scope: Scope) -> Reply:
    # What a browser asks before it sends a page's request to another origin.
    origins = [value for name, value in scope["headers"] if name == b"origin"]
    is_web = any(b"http://" in each or b"https://" in each for each in origins)
    return Reply(200 if is_web else 400, b"", JSON)
