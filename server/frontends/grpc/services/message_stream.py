"""Answers the messages of bidirectional streams, each as if it were a call of a unary method."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import grpc

from server.frontends.grpc import errors, peers
from server.frontends.grpc.executor.call_executor import CallExecutor, SendMessage
from server.process.thread_pool import ThreadPool
from tpuserve.errors import Code, CodedError, ShuttingDown, TpuserveError

MAX_STREAMS, MAX_STREAMS_PER_PEER = 512, 128
"""The largest number of open streams, of all clients and of one client. Each occupies a thread."""

logger = logging.getLogger(__name__)


class MessageFailed(Exception):
    """The error with which the call of a message would have ended."""


class MessageStreams:
    """The open streams of one method.

    A stream answers its messages in order. It reads the next message when the client has taken the
    answer to the last one, so that gRPC's flow control slows down a client that sends too fast. An
    error of a message does not end the stream.

    Args:
      handle: answers a message: the handler of a unary method.
      encode_reply: converts the response of the unary method to that of the stream.
      encode_error: converts a message, and the text of its error, to a response of the stream.
    """

    def __init__(
        self,
        handle: Callable[[Iterator[bytes], Any], bytes],
        executor: CallExecutor,
        encode_reply: Callable[[bytes], bytes],
        encode_error: Callable[[bytes, str], bytes],
    ) -> None:
        self._handle = handle
        self._executor = executor
        self._encode_reply = encode_reply
        self._encode_error = encode_error
        self._pool = ThreadPool(MAX_STREAMS, "grpc-stream")
        self._streams: set[_Stream] = set()
        self._num_of_peer: Counter[str] = Counter()
        self._is_draining = False
        self._lock = threading.Lock()

    @property
    def is_full(self) -> bool:
        """Whether no further stream can be answered."""
        return len(self._streams) >= MAX_STREAMS

    def handler(self) -> grpc.RpcMethodHandler:
        """Return grpcio's handler of the method."""

        def run(
            messages: Iterator[bytes], context: grpc.ServicerContext, send: SendMessage
        ) -> None:
            self._run(messages, context, send)

        run.experimental_thread_pool = self._pool  # type: ignore[attr-defined]
        # With this attribute, grpcio lets other threads than that of the stream end it.
        run.experimental_non_blocking = True  # type: ignore[attr-defined]
        return grpc.stream_stream_rpc_method_handler(run)

    def drain(self) -> None:
        """End each stream when the message under way is answered, and refuse new streams."""
        with self._lock:
            self._is_draining = True
            streams = list(self._streams)
        for stream in streams:
            stream.drain()

    def close(self) -> None:
        """End the threads. The gRPC server must have stopped."""
        self._pool.shutdown(wait=False)

    def _run(
        self, messages: Iterator[bytes], context: grpc.ServicerContext, send: SendMessage
    ) -> None:
        stream = _Stream(context, send)
        peer = peers.peer_name(context.peer())
        try:
            self._open(stream, peer)
        except TpuserveError as refusal:
            stream.end(refusal)
            return
        error: TpuserveError | None = _shutting_down()
        try:
            while (message := next(messages, None)) is not None:
                if not stream.begin_message():
                    break
                self._answer(stream, message)
                # Do not keep the message in memory until the next one has come.
                del message
            else:
                error = None
        except grpc.RpcError:
            # The client has cancelled the stream, or is gone.
            pass
        except Exception:
            logger.exception("a stream has failed")
            error = CodedError("Internal error, see the server's log", Code.INTERNAL)
        finally:
            with self._lock:
                self._streams.discard(stream)
                self._num_of_peer[peer] -= 1
                if not self._num_of_peer[peer]:
                    del self._num_of_peer[peer]
            stream.end(error)

    def _open(self, stream: "_Stream", peer: str) -> None:
        with self._lock:
            if self._is_draining:
                raise _shutting_down()
            if peer and self._num_of_peer[peer] >= MAX_STREAMS_PER_PEER:
                raise too_many_streams(MAX_STREAMS_PER_PEER)
            self._streams.add(stream)
            self._num_of_peer[peer] += 1

    def _answer(self, stream: "_Stream", message: bytes) -> None:
        call = _MessageCall(stream.context)
        stream.call = call
        try:
            try:
                reply = self._encode_reply(self._handle(iter((message,)), call))
            except MessageFailed as error:
                reply = self._encode_error(message, str(error))
            finally:
                self._executor.end_turn()
            with self._executor.unread_responses.tracking(stream.context):
                stream.send(reply)
        finally:
            call.end()
            stream.end_message()


class _Stream:
    """One stream, which its own thread answers, and which another thread may end.

    Attributes:
      call: the part of the call for the message under way.
    """

    def __init__(self, context: grpc.ServicerContext, send: SendMessage) -> None:
        self.context = context
        self.send = send
        self.call: _MessageCall | None = None
        self._is_busy = self._is_draining = self._is_over = False
        self._lock = threading.Lock()
        context.add_callback(self._cancel)

    def begin_message(self) -> bool:
        """Return whether the next message may be answered."""
        with self._lock:
            self._is_busy = not (self._is_draining or self._is_over)
            return self._is_busy

    def end_message(self) -> None:
        with self._lock:
            self._is_busy = False
            is_draining = self._is_draining
        if is_draining:
            self.end(_shutting_down())

    def drain(self) -> None:
        with self._lock:
            self._is_draining = True
            is_busy = self._is_busy
        if not is_busy:
            self.end(_shutting_down())

    def end(self, error: TpuserveError | None) -> None:
        """End the stream with an error, or successfully, unless it has ended."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
        if error is not None:
            self.context.set_code(errors.GRPC_STATUS[error.code])
            self.context.set_details(errors.truncate_message(str(error)))
        self.send(None)

    def _cancel(self) -> None:
        if self.call is not None:
            self.call.end()


class _MessageCall:
    """The part of a stream's ServicerContext that the handler of a unary method uses."""

    def __init__(self, context: grpc.ServicerContext) -> None:
        self._context = context
        self._callbacks: list[Callable[[], None]] | None = []
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the stream's context, such as its peer and deadline."""
        return getattr(self._context, name)

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        raise MessageFailed(details)

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Call a function when the message is answered, or the stream has ended before."""
        with self._lock:
            if self._callbacks is None or not self._context.is_active():
                return False
            self._callbacks.append(callback)
            return True

    def end(self) -> None:
        with self._lock:
            callbacks, self._callbacks = self._callbacks or [], None
        for callback in callbacks:
            callback()


def too_many_streams(limit: int) -> TpuserveError:
    """Return the error for a stream beyond a limit."""
    return CodedError(
        f"{limit} streams are open. Close one, or send the request with ModelInfer.",
        Code.RESOURCE_EXHAUSTED,
    )


def _shutting_down() -> TpuserveError:
    return ShuttingDown("the server is shutting down. Open the stream to another server.")
