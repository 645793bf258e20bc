"""The threads that calls are answered in: few, and not to be held up by slow senders."""

import logging
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any, Protocol, TypeAlias

import grpc

from server.frontends.grpc.executor import grpcio_compat
from server.frontends.grpc.executor.default_thread_pool import DefaultThreadPool

logger = logging.getLogger(__name__)

SendMessage: TypeAlias = Callable[[bytes | None], object]
"""Sends a message of a stream; None ends it."""


class CallExecutor(Protocol):
    """Runs calls, so many at a time at most, whose messages have a time to arrive in.

    Takes the place of a ThreadPoolExecutor under a gRPC server.
    """

    def start(self, server: grpc.Server) -> None:
        """Has a server that was made with these threads begin to accept calls."""

    def register(
        self,
        behavior: Any,
        *,
        pool: futures.ThreadPoolExecutor | None = None,
        is_quick: bool = False,
    ) -> None:
        """Says where a method runs: here, unless one of the arguments says otherwise.

        Args:
          behavior: a function that gets an iterator of messages, of which it takes the first
            through `receive_first`, and a context.
          pool: threads of its own, for what takes long.
          is_quick: that it waits for nothing and computes little, so that it is answered even
            while all threads are busy.
        """

    def submit(self, *args: Any) -> Any:
        """What gRPC calls to have a call run."""

    def receive_first(self, messages: Iterator[bytes], call: Any) -> bytes | None:
        """The first message of a call; None if it ends before.

        Raises:
          grpc.RpcError: the call was cancelled, by the client or because its message is late.
        """

    def stream_writer(self, context: Any, send: SendMessage) -> SendMessage:
        """What sends the messages of a stream without waiting for its reader, as far as it can.

        Args:
          send: what gRPC gives to do so, which may wait.
        """

    def shutdown(self) -> None:
        """Ends the threads; after the server has stopped."""

    @property
    def size(self) -> int:
        """The number of threads at the moment."""


def make(count: int) -> CallExecutor:
    """So many threads for calls, of the faster kind where the grpcio that is installed allows it.

    Args:
      count: of calls that are answered at once.
    """
    if grpcio_compat.supports_direct_polling():
        from server.frontends.grpc.executor.cq_thread_pool import CompletionQueueThreadPool

        return CompletionQueueThreadPool(count)
    logger.warning(
        "grpcio %s is made otherwise than expected, which costs speed and nothing else. "
        "1.71 to 1.85 are known to be as expected",
        grpc.__version__,
    )
    return DefaultThreadPool(count)
