"""The interface of the thread pools that run gRPC calls."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any, TypeAlias

import grpc

from server.frontends.grpc import peers
from server.frontends.grpc.executor.call_admission import AdmittedCall, CallAdmission
from server.frontends.grpc.executor.call_future import CallFuture
from server.frontends.grpc.executor.stalled_calls import (
    CancellableCall,
    StalledCallLimits,
    StalledCallReaper,
)
from server.scheduling.request_queues import RequestQueues
from server.scheduling.ticket import RunPool
from server.servables.pending import Pending

ReadModelName: TypeAlias = Callable[[bytes], str]
"""A function that reads the model's name from a serialised request; "" for no model."""

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
        limits: StalledCallLimits | None = None,
        queues: RequestQueues | None = None,
    ) -> None:
        """Create an executor.

        Args:
          max_concurrent_calls: the largest number of calls that run at the same time.
          limits: the limits of calls whose first message has not arrived; None for the defaults.
          queues: decide which calls run; None for queues that no other frontend shares.
        """
        self._max_concurrent_calls = max_concurrent_calls
        self._queues = RequestQueues() if queues is None else queues
        self._run_pool = RunPool(max_concurrent_calls)
        self._reaper = StalledCallReaper(limits or StalledCallLimits())

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
        admission: CallAdmission | None = None,
        read_model_name: ReadModelName = lambda raw: "",
    ) -> None:
        """Choose the threads that run a gRPC method. The default is the executor's own threads.

        Args:
          behavior: the function that implements the method. Its arguments are an iterator of
            messages and a ServicerContext. The function takes the first message with
            `receive_first`.
          pool: a thread pool that runs the method instead, for methods that take long.
          is_quick: whether the method neither waits nor computes for long. The executor runs such a
            method at once, even if `max_concurrent_calls` calls run already.
          admission: the admission control of the calls; None for none.
          read_model_name: reads the model's name from the serialised request. The call waits in the
            queue of this model for one of the executor's own threads.
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

    def receive_admitted(
        self,
        messages: Iterator[bytes],
        context: grpc.ServicerContext,
        admission: CallAdmission,
    ) -> tuple[bytes | None, AdmittedCall | None]:
        """Receive the first message of a call, as `receive_first` does, and admit the call.

        Args:
          messages: the messages of the call.
          context: the context of the call.
          admission: the admission with which the method was registered.

        Returns:
          The message, and the admitted call, which the caller must release; None and None if there
          is no message.

        Raises:
          grpc.RpcError: as in `receive_first`.
          TpuserveError: the call is refused; see `CallAdmission.admit`.
        """
        message = self.receive_first(messages, context)
        if message is None:
            return None, None
        return message, admission.admit(message, peers.peer_name(context.peer()))

    def received_ns(self, messages: Iterator[bytes]) -> int:
        """Return when the first message of a call arrived, from `time.perf_counter_ns`.

        The handler calls this method when it begins, and, if the executor had not received the
        message by then, again when it has the message.

        Args:
          messages: the iterator that was passed to the handler of the call.
        """
        return time.perf_counter_ns()

    def suspend(self, messages: Iterator[bytes], call: object, pending: Pending[Any]) -> None:
        """Let a call wait without a thread; return at once if the executor does not support that.

        Args:
          messages: the iterator that was passed to the handler of the call.
          call: the object that the handler needs to go on later.
          pending: the result that the call waits for.

        Raises:
          CallSuspended: the handler must pass this exception on. The handler will be called again
            when `pending` is complete, and `resume` then returns `call`.
        """
        return

    def resume(self, messages: Iterator[bytes]) -> Any:
        """Return the argument `call` of `suspend`; None for a call that was not suspended."""
        return None

    @abstractmethod
    def await_turn(
        self, messages: Iterator[bytes], context: grpc.ServicerContext, model: Callable[[], str]
    ) -> None:
        """Wait until a call may run in one of the executor's own threads.

        Args:
          messages: the iterator that was passed to `receive_first`.
          context: the context of the call.
          model: returns the name of the model.

        Raises:
          QueueFull, WaitedTooLong: the queue of the model refuses the call.
        """

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
