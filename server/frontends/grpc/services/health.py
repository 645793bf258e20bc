"""The service grpc.health.v1.Health, by which clients learn whether the server is ready.

Source: https://github.com/grpc/grpc/blob/master/doc/health-checking.md.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2

from server.config.settings import Settings
from server.frontends.grpc.call_context import CallContext
from server.frontends.grpc.executor.call_executor import SendMessage
from server.frontends.grpc.services.call_handler import (
    UnaryMethod,
    build_unary_handler,
)
from server.frontends.grpc.services.parsing import parse_message
from server.frontends.grpc.services.service import GrpcService, ServiceContext
from tpuserve.errors import InvalidInput, NotFound
from tpuserve.proto import protobuf_wire

_Response = health_pb2.HealthCheckResponse
# The serialised protobuf tags with which this module writes a HealthListResponse. Its field
# `statuses` is a map, whose entries have a key and a value.
_STATUSES_TAG = protobuf_wire.field_tag(1)
_KEY_TAG, _VALUE_TAG = protobuf_wire.field_tag(1), protobuf_wire.field_tag(2)


class HealthService(GrpcService):
    """Answers health checks. The status is the same for all enabled services.

    The status is SERVING until `report_health` changes it or `drain` is called.

    A health check with an empty service name asks for the health of the whole server.
    """

    names = (health.SERVICE_NAME,)

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._known_names = {
            health.OVERALL_HEALTH,
            *(name for service in context.service_types for name in service.health_names),
        }
        self._watchers: set[_Watcher] = set()
        self._is_serving = True
        self._is_draining = False
        self._lock = threading.Lock()

    @classmethod
    def is_enabled(cls, settings: Settings) -> bool:
        """Return whether the settings enable health checks over gRPC."""
        return settings.enable_grpc_healthcheck_service

    def handlers(self) -> Sequence[grpc.GenericRpcHandler]:
        """Return a single handler, for the methods Check, List and Watch."""
        executor = self._context.executor

        def watch(
            messages: Iterator[bytes], context: grpc.ServicerContext, send: SendMessage
        ) -> None:
            message = executor.receive_first(messages, context)
            try:
                request = parse_message(health_pb2.HealthCheckRequest, message or b"")
            except InvalidInput as error:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            send = executor.stream_writer(context, send)
            is_known = request.service in self._known_names
            self._watch(_Watcher(is_known, lambda: self._status, send), context)

        executor.register(watch, pool=self._context.admin_pool)
        # Set grpcio's attribute `experimental_non_blocking`, so that an open stream of Watch
        # occupies a thread only while a status is sent.
        watch.experimental_non_blocking = True  # type: ignore[attr-defined]
        name = self.names[0]
        environment = self._context.environment
        quick_methods = {
            method: build_unary_handler(
                f"/{name}/{method}", UnaryMethod(function, is_quick=True), environment
            )
            for method, function in (("Check", self._check), ("List", self._list))
        }
        methods = {
            **quick_methods,
            # Declare Watch as a method with a stream of requests, although a call has only one
            # request: only then can the executor cancel a call whose request is late.
            "Watch": grpc.stream_stream_rpc_method_handler(watch),
        }
        return [grpc.method_handlers_generic_handler(name, methods)]

    def report_health(self, is_serving: bool) -> None:
        """Set the status to SERVING or NOT_SERVING, and send it to all clients of the method Watch.

        Do nothing while the server drains: the status stays NOT_SERVING then.
        """
        with self._lock:
            if self._is_draining or is_serving == self._is_serving:
                return
            self._is_serving = is_serving
            watchers = list(self._watchers)
        for watcher in watchers:
            # Send in the threads of a pool, because sending can block if the client does not read.
            self._context.admin_pool.run_soon(watcher.send_status)

    def drain(self) -> None:
        """Send NOT_SERVING to all clients of the method Watch, and end their streams.

        Open streams would delay the stop of the server by the whole grace period.
        """
        with self._lock:
            self._is_draining = True
            watchers, self._watchers = self._watchers, set()
        for watcher in watchers:
            # End the streams in the threads of a pool, because sending the last message can block
            # if the client does not read.
            self._context.admin_pool.run_soon(watcher.end)

    @property
    def _status(self) -> Any:
        is_serving = self._is_serving and not self._is_draining
        return _Response.SERVING if is_serving else _Response.NOT_SERVING

    def _check(self, raw: bytes | memoryview, call: CallContext) -> bytes:
        name = parse_message(health_pb2.HealthCheckRequest, raw).service
        if name not in self._known_names:
            known = ", ".join(repr(known) for known in sorted(self._known_names))
            raise NotFound(f"no service is named {name!r}. Known names: {known}.")
        return self._serialize_status()

    def _list(self, raw: bytes | memoryview, call: CallContext) -> bytes:
        """Return a serialised HealthListResponse, which maps each known name to its status."""
        # Write the bytes of the message here, because old versions of grpcio-health-checking do not
        # have the class HealthListResponse.
        status = protobuf_wire.encode_field(_VALUE_TAG, self._serialize_status())
        entries = (
            protobuf_wire.encode_field(_KEY_TAG, name.encode()) + status
            for name in sorted(self._known_names)
        )
        return b"".join(protobuf_wire.encode_field(_STATUSES_TAG, entry) for entry in entries)

    def _serialize_status(self) -> bytes:
        return bytes(_Response(status=self._status).SerializeToString())

    def _watch(self, watcher: "_Watcher", context: grpc.ServicerContext) -> None:
        # Hold the lock only to change the set of watchers, and send messages without the lock.
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
        watcher.send_status()


class _Watcher:
    """A call of the method Watch, whose client gets a message at each change of the status."""

    def __init__(self, is_known: bool, read_status: Callable[[], Any], send: SendMessage) -> None:
        self._is_known = is_known
        self._read_status = read_status
        self._send = send
        self._sent: Any = None
        self._is_over = False
        self._lock = threading.Lock()

    def send_status(self) -> None:
        """Send the present status, unless the client has it already or `end` was called."""
        with self._lock:
            if not self._is_over:
                # Read the status while this thread holds the lock. Otherwise, if several threads
                # send, an outdated status could be sent last.
                self._send_new(self._read_status())

    def end(self) -> None:
        with self._lock:
            self._is_over = True
            self._send_new(_Response.NOT_SERVING)
            self._send(None)

    def _send_new(self, status: Any) -> None:
        status = status if self._is_known else _Response.SERVICE_UNKNOWN
        if status != self._sent:
            self._sent = status
            self._send(_Response(status=status).SerializeToString())
