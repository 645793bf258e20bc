"""grpc.health.v1.Health: whether to send requests here."""

import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any, TypeAlias

import grpc
from grpc_health.v1 import health, health_pb2

SERVICE_NAME: str = health.SERVICE_NAME

# The bare names, as TensorFlow Serving registers them.
_NAMES = (health.OVERALL_HEALTH, "ModelService", "PredictionService")

Send: TypeAlias = Callable[[Any], None]
"""Sends a message to who watches; None ends it."""


class Health:
    """Serving from the beginning, until the server drains."""

    def __init__(self, pool: futures.ThreadPoolExecutor) -> None:
        """Takes threads of its own: the answer must come while all others are busy, too."""
        self._pool = pool
        self._servicer = health.HealthServicer()
        self._watchers: set[Send] = set()
        self._is_draining = False
        self._lock = threading.Lock()
        for name in _NAMES:
            self._servicer.set(name, health_pb2.HealthCheckResponse.SERVING)

    def handler(self) -> grpc.GenericRpcHandler:
        """What gRPC calls."""

        def check(request: Any, context: grpc.ServicerContext) -> Any:
            return self._servicer.Check(request, context)

        def watch(request: Any, context: grpc.ServicerContext, send: Send) -> None:
            self._servicer.Watch(request, context, send)
            self._keep(send, context)

        check.experimental_thread_pool = self._pool  # type: ignore[attr-defined]
        watch.experimental_thread_pool = self._pool  # type: ignore[attr-defined]
        # Who watches then gets a thread when there is news alone.
        watch.experimental_non_blocking = True  # type: ignore[attr-defined]
        how = (
            health_pb2.HealthCheckRequest.FromString,
            health_pb2.HealthCheckResponse.SerializeToString,
        )
        methods = {
            "Check": grpc.unary_unary_rpc_method_handler(check, *how),
            "Watch": grpc.unary_stream_rpc_method_handler(watch, *how),
        }
        return grpc.method_handlers_generic_handler(SERVICE_NAME, methods)

    def drain(self) -> None:
        """Says to everybody that nothing is served any more, and ends their watching.

        It would keep the server from stopping for as long as requests in flight may take.
        """
        self._servicer.enter_graceful_shutdown()
        with self._lock:
            # A stream can be ended once.
            watchers = [] if self._is_draining else list(self._watchers)
            self._is_draining = True
        for each in watchers:
            each(None)

    def _keep(self, send: Send, context: grpc.ServicerContext) -> None:
        with self._lock:
            self._watchers.add(send)
            is_draining = self._is_draining
        if is_draining:
            send(None)
        elif not context.add_callback(lambda: self._watchers.discard(send)):
            self._watchers.discard(send)
