"""The service tensorflow.ProfilerService: forwards calls to TensorFlow's own profiler server."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence

import grpc

from server.config.settings import Settings
from server.frontends.grpc.services.service import GrpcService, ServiceContext
from server.process import ports

_HOST = "127.0.0.1"
_NO_LIMIT = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
# A call with more time left than this counts as one without a deadline, because grpcio reports a
# deadline in the far future if the client has set none.
_NO_DEADLINE_SECONDS = 10**8

logger = logging.getLogger(__name__)


def start_tf_profiler_server() -> str:
    """Start TensorFlow's profiler server on a free port of this machine, and return its address."""
    import tensorflow as tf

    with ports.bind_port(_HOST, 0, "--enable_profiler") as reserved:
        port = reserved.getsockname()[1]
    tf.profiler.experimental.server.start(port)
    return f"{_HOST}:{port}"


class ProfilerService(GrpcService, grpc.GenericRpcHandler):
    """Forwards every call to TensorFlow's profiler server, which is started at the first call.

    The calls run in `ServiceContext.admin_pool`, because recording a profile lasts as long as the
    client asks for.
    """

    names = ("tensorflow.ProfilerService",)

    def __init__(
        self,
        context: ServiceContext,
        start_server: Callable[[], str] = start_tf_profiler_server,
    ) -> None:
        """Create the service.

        Args:
          context: the dependencies of the service.
          start_server: starts the profiler server and returns its address. A process can start only
            one such server.
        """
        self._context = context
        self._start_server = start_server
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
        call = stub.future(message, timeout=_remaining_seconds(context), wait_for_ready=True)
        # When the client cancels its call, cancel the forwarded call as well, which ends the
        # recording.
        context.add_callback(call.cancel)
        try:
            return bytes(call.result())
        except grpc.RpcError:
            context.abort(call.code(), call.details())
        except grpc.FutureCancelledError:
            context.abort(grpc.StatusCode.CANCELLED, "the call was cancelled")
        raise AssertionError("abort never returns")

    def _connect(self) -> grpc.Channel:
        """Return the channel to the profiler server; start the server at the first call."""
        with self._lock:
            if self._channel is None:
                self._channel = grpc.insecure_channel(self._start_server(), _NO_LIMIT)
            return self._channel


def _remaining_seconds(context: grpc.ServicerContext) -> float | None:
    """Return the seconds until the deadline of a call; None for no deadline."""
    remaining = context.time_remaining()
    return None if remaining is None or remaining > _NO_DEADLINE_SECONDS else remaining
