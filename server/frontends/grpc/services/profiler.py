"""tensorflow.ProfilerService, by handing its messages to TensorFlow's own server for it."""

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent import futures

import grpc

from server.frontends.grpc.executor.call_executor import CallExecutor
from server.process import ports

SERVICE_NAME = "tensorflow.ProfilerService"

_HOST = "127.0.0.1"
_NO_LIMIT = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]

logger = logging.getLogger(__name__)


def start_tf_profiler_server() -> str:
    """The address of TensorFlow's profiler server, started on a port of this machine's choice."""
    import tensorflow as tf

    with ports.bind_port(_HOST, 0, "--enable_profiler") as reserved:
        port = reserved.getsockname()[1]
    tf.profiler.experimental.server.start(port)
    return f"{_HOST}:{port}"


class Profiler(grpc.GenericRpcHandler):
    """Forwards every method of the service; the server behind it starts with the first call."""

    def __init__(
        self,
        threads: CallExecutor,
        pool: futures.ThreadPoolExecutor,
        start: Callable[[], str] = start_tf_profiler_server,
    ) -> None:
        """Takes threads of its own, since a profile takes as long as it is asked to.

        Args:
          start: starts the server behind, and returns its address; a process has only one.
        """
        self._threads = threads
        self._pool = pool
        self._start = start
        self._channel: grpc.Channel | None = None
        self._lock = threading.Lock()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """What forwards a call of the service; None for a call of another one."""
        method: str = details.method
        if not method.startswith(f"/{SERVICE_NAME}/"):
            return None

        def call(messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
            message = self._threads.receive_first(messages, context)
            return self._forward(method, message or b"", context)

        self._threads.register(call, pool=self._pool)
        return grpc.stream_unary_rpc_method_handler(call)

    def close(self) -> None:
        """Lets go of the server behind."""
        with self._lock:
            if self._channel is not None:
                self._channel.close()
                self._channel = None

    def _forward(self, method: str, message: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            stub = self._connected().unary_unary(method)
        except Exception:
            logger.exception("TensorFlow's profiler server cannot be started")
            context.abort(
                grpc.StatusCode.UNAVAILABLE, "the profiler cannot be started, see the server's log"
            )
        call = stub.future(message, timeout=_timeout(context), wait_for_ready=True)
        # Who has gone wants no profile any more.
        context.add_callback(call.cancel)
        try:
            return bytes(call.result())
        except grpc.RpcError:
            context.abort(call.code(), call.details())
        except grpc.FutureCancelledError:
            context.abort(grpc.StatusCode.CANCELLED, "the call was cancelled")
        raise AssertionError("abort never returns")

    def _connected(self) -> grpc.Channel:
        with self._lock:
            if self._channel is None:
                self._channel = grpc.insecure_channel(self._start(), _NO_LIMIT)
            return self._channel


def _timeout(context: grpc.ServicerContext) -> float | None:
    remaining = context.time_remaining()
    # A call without a deadline has one in the far future, which a client cannot be given.
    return None if remaining is None or remaining > 10**8 else remaining
