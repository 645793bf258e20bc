"""The service tensorflow.ProfilerService: forwards calls to TensorFlow's own profiler server."""

import logging
import threading
from collections.abc import Iterator, Sequence

import grpc

from server.config.settings import Settings
from server.frontends.grpc import deadlines
from server.frontends.grpc.services.service import GrpcService, ServiceContext

_NO_LIMIT = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
# The duration, in seconds, of each event that the server itself records while a profile is taken.
# With these events, the profile of an idle server is not empty.
_EVENT_SECONDS = 0.1

logger = logging.getLogger(__name__)


class ProfilerService(GrpcService, grpc.GenericRpcHandler):
    """Forwards every call to TensorFlow's profiler server, which the first call starts.

    The calls run in `ServiceContext.admin_pool`, because recording a profile lasts as long as the
    client asks for.
    """

    names = ("tensorflow.ProfilerService",)

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._address = ""
        self._channel: grpc.Channel | None = None
        self._lock = threading.Lock()

    @classmethod
    def is_enabled(cls, settings: Settings) -> bool:
        """Return whether the settings enable the profiler."""
        return settings.enable_profiler

    def handlers(self) -> Sequence[grpc.GenericRpcHandler]:
        """Return the service itself, which is the handler of its methods."""
        return [self]

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Return the handler that forwards a call; None for a method of another service."""
        method: str = details.method
        if not method.startswith(f"/{self.names[0]}/"):
            return None
        executor = self._context.executor

        def forward(messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
            message = executor.receive_first(messages, context)
            return self._forward(method, message or b"", context)

        executor.register(forward, pool=self._context.admin_pool)
        return grpc.stream_unary_rpc_method_handler(forward)

    def close(self) -> None:
        """Close the channel to TensorFlow's profiler server."""
        with self._lock:
            if self._channel is not None:
                self._channel.close()
                self._channel = None

    def _forward(self, method: str, message: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            stub = self._connect().unary_unary(method)
        except Exception:
            logger.exception("TensorFlow's profiler server cannot be started")
            context.abort(
                grpc.StatusCode.UNAVAILABLE, "the profiler cannot be started, see the server's log"
            )
        timeout = deadlines.remaining_seconds(context)
        call = stub.future(message, timeout=timeout, wait_for_ready=True)
        # When the client cancels its call, cancel the forwarded call as well, which ends the
        # recording.
        context.add_callback(call.cancel)
        self._trace_until_done(call)
        try:
            return bytes(call.result())
        except grpc.RpcError:
            context.abort(call.code(), call.details())
        except grpc.FutureCancelledError:
            context.abort(grpc.StatusCode.CANCELLED, "the call was cancelled")
        raise AssertionError("abort never returns")

    def _trace_until_done(self, call: grpc.Future) -> None:
        """Wait until a forwarded call is done, and record profiler events meanwhile."""
        is_done = threading.Event()
        call.add_done_callback(lambda _: is_done.set())
        admission = self._context.admission
        while not is_done.is_set():
            in_flight = 0 if admission is None else admission.in_flight
            self._context.dataplane.record_profiler_event(_EVENT_SECONDS, in_flight)

    def _connect(self) -> grpc.Channel:
        """Return the channel to TensorFlow's profiler server; start the server if needed."""
        address = self._context.dataplane.start_profiler()
        with self._lock:
            # Create a new channel if the address has changed. It changes when the process that runs
            # the models is restarted.
            if self._channel is None or address != self._address:
                self._address = address
                self._channel = grpc.insecure_channel(address, _NO_LIMIT)
            return self._channel
