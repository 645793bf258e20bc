"""The interface of the thread pools that run the handlers of gRPC calls."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn, TypeAlias

import grpc

from server.admission.cancellation import Cancellation
from server.admission.memory_budget import MemoryReservation
from server.frontends.grpc import deadlines, peers
from server.frontends.grpc.executor.call_admission import AdmittedCall, CallAdmission
from server.frontends.grpc.executor.call_future import CallFuture
from server.frontends.grpc.executor.stalled_calls import (
    CancellableCall,
    StalledCallLimits,
    StalledCallReaper,
    limit_unread_responses,
)
from server.metrics.timeline import Timeline
from server.process.thread_pool import ThreadPool
from server.request import CLOCK, RequestContext
from server.scheduling.request_queues import RequestQueues
from server.scheduling.ticket import RunPool, Ticket
from server.servables.pending import Pending
from tpuserve.errors import TpuserveError

ReadModelName: TypeAlias = Callable[[bytes], str]
"""A function that reads the model's name from a serialised request; "" for no model."""

SendMessage: TypeAlias = Callable[[bytes | None], object]
"""A function that sends a serialised message of a response stream. None ends the stream."""


class BlockingTicket(Ticket):
    """The entry of a call in `RequestQueues`. The thread of the call blocks until the call may run.

    Attributes:
      turn: the threading.Event for which the thread of the call waits. It is set when the call may
        run or is refused.
      error: why the call is refused; None if it may run.
    """

    __slots__ = ("error", "turn")

    def __init__(self, context: RequestContext, pool: RunPool) -> None:
        super().__init__(context, pool)
        self.turn = threading.Event()
        self.error: TpuserveError | None = None

    def start(self) -> None:
        """Let the thread of the call go on."""
        self.turn.set()

    def refuse(self, error: TpuserveError) -> None:
        """Let the thread of the call go on with an error."""
        self.error = error
        self.turn.set()


class CallExecutor(ABC):
    """A thread pool that runs gRPC calls, and cancels calls whose first message is late.

    An executor takes the place of the ThreadPoolExecutor that grpc.server() expects. grpcio itself
    calls only `submit`, and `add_done_callback` of the future that `submit` returns.

    Attributes:
      default_timeout_ms: the milliseconds in which a call without a deadline must be answered; None
        for no limit. A call that still waits in its queue after this time is refused.

    Args:
      max_concurrent_calls: the largest number of calls that run at the same time.
      queues: the queue of each model, in which calls wait until they may run; None for queues
        that no other frontend shares.
    """

    def __init__(
        self,
        max_concurrent_calls: int,
        limits: StalledCallLimits | None = None,
        queues: RequestQueues | None = None,
        default_timeout_ms: float | None = None,
    ) -> None:
        self.default_timeout_ms = default_timeout_ms
        self._max_concurrent_calls = max_concurrent_calls
        self._queues = RequestQueues() if queues is None else queues
        self._run_pool = RunPool(max_concurrent_calls)
        # Thread-local data. The attribute `ticket` is the entry in `RequestQueues` for the call
        # whose thread has waited in `wait_for_turn`.
        self._current = threading.local()
        self._reaper = StalledCallReaper(limits or StalledCallLimits())
        self.unread_responses = StalledCallReaper(limit_unread_responses())

    @abstractmethod
    def start(self, server: grpc.Server) -> None:
        """Start a grpc.Server that was created with this executor as its thread pool."""

    @abstractmethod
    def register(
        self,
        behavior: Any,
        *,
        pool: ThreadPool | None = None,
        is_quick: bool = False,
        admission: CallAdmission | None = None,
        read_model_name: ReadModelName = lambda raw: "",
    ) -> None:
        """Choose the threads that run the calls of a gRPC method.

        By default, the executor's own threads run them.

        Args:
          behavior: the function that implements the method. Its arguments are an iterator of
            messages and a ServicerContext.
          pool: a thread pool that runs the calls instead of the executor's own threads, for a
            method that takes long; None for the executor's own threads.
          is_quick: whether the method neither waits nor computes for long. The executor runs such a
            method at once, even if `max_concurrent_calls` calls run already.
          admission: admits or refuses the calls when their message has arrived; None to admit all
            calls.
          read_model_name: reads the model's name from the serialised request. The call waits in the
            queue of this model until it may run in one of the executor's own threads.
        """

    def read_description_queue(self, read_model_name: ReadModelName, raw: bytes) -> str:
        """Return the model in whose queue a serialised request for metadata waits, or ""."""
        return self._queues.find_description_queue(read_model_name(raw))

    @abstractmethod
    def submit(self, *args: Any, **kwargs: Any) -> CallFuture:
        """Run a call in one of the threads chosen with `register`.

        Only grpcio calls this method.
        """

    def receive_first(self, messages: Iterator[bytes], call: CancellableCall) -> bytes | None:
        """Block until the first message of a call has arrived, and return the message.

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

        Returns:
          A pair: the serialised message, and the admitted call, which the caller must release. Both
          are None if the client ends the stream without a message.
        """
        message = self.receive_first(messages, context)
        if message is None:
            return None, None
        return message, admission.admit(message, self.peer_name(messages, context))

    def received_ns(self, messages: Iterator[bytes]) -> int:
        """Return the time at which the first message of a call arrived.

        The handler of a call uses the time in its metrics.
        """
        return time.perf_counter_ns()

    def peer_name(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> str:
        """Return the name of the client of a call, from `peers.peer_name`."""
        return peers.peer_name(context.peer())

    def first_context(self, messages: Iterator[bytes]) -> RequestContext:
        """Return the context of a call with which its handler begins."""
        return RequestContext(timeline=Timeline(self.received_ns(messages)))

    def suspend(self, messages: Iterator[bytes], call: object, pending: Pending[Any]) -> None:
        """Free the thread of a call that must wait for a result, if the executor supports that.

        An executor that supports it ends the handler with an exception, and calls the handler again
        when the result is there.

        Raises:
          CallSuspended: the executor supports suspension. The handler must let this exception
            propagate.
        """
        return

    def move(self, messages: Iterator[bytes], call: object) -> NoReturn:
        """End the handler of a call that has met WouldBlock, to call it again in another thread.

        Raises:
          CallMoved: always. The handler must let this exception propagate.
        """
        raise AssertionError("only an executor that moves calls runs them as NonBlocking")

    def resume(self, messages: Iterator[bytes]) -> Any:
        """Return the state that the handler of a call has passed to `suspend` or `move`.

        The handler calls this method first, to learn whether it is called for the second time.
        """
        return None

    def make_request(
        self,
        messages: Iterator[bytes],
        context: grpc.ServicerContext,
        memory: MemoryReservation | None,
        model: str = "",
    ) -> RequestContext:
        """Make the context of a call whose message has arrived.

        Args:
          memory: the call's reservation in the memory budget; None if it has none yet.
        """
        received_ns = self.received_ns(messages)
        return RequestContext(
            deadlines.find_deadline(context, self.default_timeout_ms, received_ns),
            Cancellation(),
            Timeline(received_ns),
            memory,
            self.peer_name(messages, context),
            model,
        )

    def wait_for_turn(
        self,
        messages: Iterator[bytes],
        context: grpc.ServicerContext,
        memory: MemoryReservation | None,
        read_model_name: Callable[[], str],
    ) -> RequestContext:
        """Make the context of a call, and block until the queue of its model lets the call run.

        Each model limits how many of its requests run at the same time. Further requests wait in
        the queue of the model. After the call, its thread must call `end_turn`.
        """
        request = self.make_request(messages, context, memory, read_model_name())
        ticket = BlockingTicket(request, self._run_pool)
        if not self._queues.submit(ticket):
            request.cancellation.add_callback(partial(self._withdraw, ticket))
            CLOCK.watch(request)
            if not context.add_callback(request.cancellation.cancel):
                request.cancellation.cancel()
            self._block(ticket)
            if ticket.error is not None:
                CLOCK.unwatch(request)
                raise ticket.error
        self._current.ticket = ticket
        return request

    def end_turn(self) -> None:
        """Let the queue run another call, if this thread has waited for the turn of a call."""
        ticket = getattr(self._current, "ticket", None)
        if ticket is None:
            return
        self._current.ticket = None
        self._queues.end(ticket)

    def _block(self, ticket: BlockingTicket) -> None:
        """Wait until a queued call may run or is refused."""
        ticket.turn.wait()

    def _withdraw(self, ticket: BlockingTicket) -> None:
        if self._queues.withdraw(ticket):
            ticket.refuse(ticket.context.cancellation.error)

    @abstractmethod
    def stream_writer(self, context: grpc.ServicerContext, send: SendMessage) -> SendMessage:
        """Return the function that sends the messages of a response stream.

        If the installed grpcio has the required private API, the returned function queues a message
        and returns at once.
        """

    @abstractmethod
    def shutdown(self) -> None:
        """End the threads of the executor. The caller must have stopped the gRPC server."""
