"""grpc.health.v1.Health: whether to send requests here."""

import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2

from server.frontends.grpc.executor.call_executor import CallExecutor, SendMessage
from server.frontends.grpc.observability import CallObserver
from server.frontends.grpc.services import call_handler
from server.frontends.grpc.services.call_context import CallContext
from tpuserve.errors import InvalidInput, NotFound

SERVICE_NAME: str = health.SERVICE_NAME

# The bare names, as TensorFlow Serving registers them.
_NAMES = (health.OVERALL_HEALTH, "ModelService", "PredictionService")
_STATUS = health_pb2.HealthCheckResponse


class Health:
    """Serving from the beginning, until the server drains."""

    def __init__(
        self, threads: CallExecutor, pool: futures.ThreadPoolExecutor, observer: CallObserver
    ) -> None:
        """Takes where to answer.

        Args:
          threads: where who checks is answered, even while all of them are busy.
          pool: where who watches is.
          books: where checks are noted down.
        """
        self._threads = threads
        self._pool = pool
        self._observer = observer
        self._watchers: set[_Watcher] = set()
        self._is_draining = False
        self._lock = threading.Lock()

    def handler(self) -> grpc.GenericRpcHandler:
        """What gRPC calls."""

        def watch(
            messages: Iterator[bytes], context: grpc.ServicerContext, send: SendMessage
        ) -> None:
            message = self._threads.receive_first(messages, context)
            try:
                request = call_handler.parse(health_pb2.HealthCheckRequest, message or b"")
            except InvalidInput as error:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            send = self._threads.stream_writer(context, send)
            self._watch(_Watcher(request.service in _NAMES, send), context)

        self._threads.register(watch, pool=self._pool)
        # Who watches then gets a thread when there is news alone.
        watch.experimental_non_blocking = True  # type: ignore[attr-defined]
        methods = {
            "Check": call_handler.handler(
                f"/{SERVICE_NAME}/Check", self._check, self._threads, self._observer, is_quick=True
            ),
            # To gRPC the one request is a stream, so that it, too, has a time to arrive in.
            "Watch": grpc.stream_stream_rpc_method_handler(watch),
        }
        return grpc.method_handlers_generic_handler(SERVICE_NAME, methods)

    def drain(self) -> None:
        """Says to everybody that nothing is served any more, and ends their watching.

        It would keep the server from stopping for as long as requests in flight may take.
        """
        with self._lock:
            self._is_draining = True
            watchers, self._watchers = self._watchers, set()
        for each in watchers:
            # One that reads nothing keeps who sends to it.
            self._pool.submit(each.end)

    def _check(self, raw: bytes, request: CallContext) -> bytes:
        name = call_handler.parse(health_pb2.HealthCheckRequest, raw).service
        if name not in _NAMES:
            raise NotFound(f"no service is named {name!r} here")
        status = _STATUS.NOT_SERVING if self._is_draining else _STATUS.SERVING
        return bytes(_STATUS(status=status).SerializeToString())

    def _watch(self, watcher: "_Watcher", context: grpc.ServicerContext) -> None:
        # gRPC calls it in a thread that it needs for what is being sent: nobody may send while
        # they hold this lock.
        def forget() -> None:
            with self._lock:
                self._watchers.discard(watcher)

        with self._lock:
            is_draining = self._is_draining
            if not is_draining:
                self._watchers.add(watcher)
        if is_draining:
            watcher.end()
            return
        if not context.add_callback(forget):
            forget()
        watcher.begin()


class _Watcher:
    """Who watches a service, and is told one thing at a time."""

    def __init__(self, is_known: bool, send: SendMessage) -> None:
        self._is_known = is_known
        self._send = send
        self._is_over = False
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Says what is, unless that has changed by now."""
        with self._lock:
            if not self._is_over:
                self._tell(_STATUS.SERVING)

    def end(self) -> None:
        """Says that nothing is served, and that there is no more to come."""
        with self._lock:
            self._is_over = True
            self._tell(_STATUS.NOT_SERVING)
            self._send(None)

    def _tell(self, status: Any) -> None:
        message = _STATUS(status=status if self._is_known else _STATUS.SERVICE_UNKNOWN)
        self._send(message.SerializeToString())
