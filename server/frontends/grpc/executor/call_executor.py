"""The interface of the thread pools that run gRPC calls."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any, TypeAlias

import grpc

from server.frontends.grpc.executor.call_future import CallFuture
from server.frontends.grpc.executor.stalled_calls import (
    MESSAGE_TIMEOUT_SECONDS,
    CancellableCall,
    StalledCallReaper,
)

SendMessage: TypeAlias = Callable[[bytes | None], object]
"""A function that sends a serialised message of a response stream. None ends the stream."""


class CallExecutor(ABC):
    """A thread pool that runs gRPC calls, and cancels calls whose first message is late.

    An executor takes the place of the ThreadPoolExecutor that grpc.server() expects. grpcio itself
    calls only `submit`, and `add_done_callback` of the future that `submit` returns.
    """

    def __init__(
        self,
        max_concurrent_calls: int,
        message_timeout_seconds: float = MESSAGE_TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create an executor.

        Args:
          max_concurrent_calls: the largest number of calls that run at the same time.
          message_timeout_seconds: the time in which the first message of a call must arrive.
          clock: a function that returns the time in seconds; only differences matter.
        """
        self._max_concurrent_calls = max_concurrent_calls
        self._reaper = StalledCallReaper(message_timeout_seconds, clock)

    @abstractmethod
    def start(self, server: grpc.Server) -> None:
        """Start a server that was created with this executor."""

    @abstractmethod
    def register(
        self,
        behavior: Any,
        *,
        pool: futures.ThreadPoolExecutor | None = None,
        is_quick: bool = False,
    ) -> None:
        """Choose the threads that run a gRPC method. The default is the executor's own threads.

        Args:
          behavior: the function that implements the method. Its arguments are an iterator of
            messages and a ServicerContext. The function takes the first message with
            `receive_first`.
          pool: a thread pool that runs the method instead, for methods that take long.
          is_quick: whether the method neither waits nor computes for long. The executor runs such a
            method at once, even if `max_concurrent_calls` calls run already.
        """

    @abstractmethod
    def submit(self, *args: Any, **kwargs: Any) -> CallFuture:
        """Run a call. Only grpcio calls this method, with a function and its arguments."""

    def receive_first(self, messages: Iterator[bytes], call: CancellableCall) -> bytes | None:
        """Block until the first message of a call has arrived, and return it.

        Returns:
          The serialised message; None if the client ends the stream without a message.

        Raises:
          grpc.RpcError: the call was cancelled, by the client or because the message is late.
        """
        with self._reaper.tracking(call):
            return next(messages, None)

    @abstractmethod
    def stream_writer(self, context: grpc.ServicerContext, send: SendMessage) -> SendMessage:
        """Return the function that sends the messages of a response stream.

        Where grpcio permits it, the returned function queues a message instead of waiting until the
        client has read the previous messages.

        Args:
          context: the context of the call.
          send: grpcio's function that sends a message. The function may block while the client does
            not read.
        """

    @abstractmethod
    def shutdown(self) -> None:
        """End the threads of the executor. The caller must have stopped the gRPC server."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The current number of threads of the executor."""
