"""The executor whose thread polls grpcio's completion queue itself.

With its public API, grpcio polls for events in one thread, and hands each call to another thread
twice: when the call begins, and when its message has arrived.
"""

import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn

import grpc
from grpc import _server
from grpc._cython import cygrpc

from server.admission.latency_tracker import MAX_INLINE_BYTES, LatencyTracker
from server.admission.memory_budget import MemoryReservation
from server.admission.nonblocking import NonBlocking
from server.frontends.grpc import compression
from server.frontends.grpc.executor.call_admission import AdmittedCall, CallAdmission
from server.frontends.grpc.executor.call_executor import (
    CallExecutor,
    ReadModelName,
    SendMessage,
)
from server.frontends.grpc.executor.call_future import CallFuture
from server.frontends.grpc.executor.event_poller import EventPoller
from server.frontends.grpc.executor.received_message import ReceivedMessage
from server.frontends.grpc.executor.stalled_calls import CancellableCall, StalledCallLimits
from server.frontends.grpc.executor.stream_writer import NonBlockingStreamWriter
from server.frontends.grpc.executor.suspension import CallMoved, CallSuspended, ResumingThread
from server.process.thread_pool import ThreadPool
from server.request import CLOCK, RequestContext
from server.scheduling.request_queues import RequestQueues
from server.scheduling.ticket import RunnableTicket
from server.servables.pending import Pending
from tpuserve.errors import TpuserveError

# The longest wait for the end of the thread that resumes calls, in seconds.
_JOIN_SECONDS = 1.0
# The number of threads does not limit the calls that run: the queues of the models do that.
_MAX_WORKERS = 4096
# The models whose latencies are stored for a method. Clients can make up names.
_MAX_TRACKERS = 1000
_RUN, _WAIT = NonBlocking(), NonBlocking(may_run=False)

logger = logging.getLogger(__name__)


class CompletionQueueThreadPool(CallExecutor):
    """Runs calls when gRPC's completion queue has their messages.

    One thread polls the queue. It also runs small calls that are probably quick or only wait for
    their batch, because Python runs one thread at a time, and to hand a call over takes longer than
    to run it. Workers run the others.
    """

    def __init__(
        self,
        max_concurrent_calls: int,
        limits: StalledCallLimits | None = None,
        queues: RequestQueues | None = None,
        default_timeout_ms: float | None = None,
    ) -> None:
        super().__init__(max_concurrent_calls, limits, queues, default_timeout_ms)
        self._server_state: Any = None
        self._poller = EventPoller()
        self._resuming_thread = ResumingThread()
        self._workers = ThreadPool(_MAX_WORKERS, "grpc-worker")

    def start(self, server: grpc.Server) -> None:
        """Start a grpc.Server that was created with this executor, and the threads."""
        state = self._server_state = server._state
        with state.lock:
            state.server.start()
            state.stage = _server._ServerStage.STARTED
            _server._request_call(state)
        self._resuming_thread.start()
        self._poller.start(state)
        self._reaper.start()
        self.unread_responses.start()

    def register(
        self,
        behavior: Any,
        *,
        pool: ThreadPool | None = None,
        is_quick: bool = False,
        admission: CallAdmission | None = None,
        read_model_name: ReadModelName = lambda raw: "",
    ) -> None:
        """Choose the threads that run a method. Arguments as for `CallExecutor.register`."""
        if is_quick:
            behavior.dispatch = self._run_quick
        elif pool is not None:
            behavior.dispatch = lambda future, message: pool.run_soon(future.run)
        else:
            trackers: dict[str, LatencyTracker] = {}
            behavior.dispatch = partial(self._run_or_queue, read_model_name, trackers)
        behavior.admission = admission

    def submit(
        self,
        run: Callable[..., object],
        target: Callable[..., object],
        event: Any,
        state: Any,
        behavior: Any,
        unused_argument: Any,
        *serializers: Any,
        **kwargs: Any,
    ) -> CallFuture:
        """Request the first message of a call, and run the call when the message arrives.

        Only grpcio calls this method. `grpcio_compat` tests that grpcio passes these arguments.

        Args:
          unused_argument: grpcio's iterator of messages. It is not used, because its `next` blocks
            a thread.
        """
        call, reaper = event.call, self._reaper
        message = ReceivedMessage(event, state, reaper.track(call))
        future = CallFuture(
            run,
            (target, event, state, behavior, lambda: message, *serializers),
            self._resuming_thread,
        )
        on_grpcio_received = _server._receive_message(state, call, None)

        def on_received(received: Any) -> Any:
            finished = on_grpcio_received(received)
            reaper.untrack(call)
            message.received_ns = time.perf_counter_ns()
            try:
                message.admit(behavior.admission)
                if message.refusal is None:
                    behavior.dispatch(future, message)
                else:
                    # Free the memory of the message, which may be large: the refused call does not
                    # need it.
                    state.request = None
                    behavior.admission.rejection_pool.run_soon(future.run)
            except Exception:
                # Cancel a call that cannot be run, for example because its pool has been shut down.
                # No handler will answer it.
                logger.exception("a call cannot be run")
                call.cancel()
            return finished

        state.due.add(_server._RECEIVE_MESSAGE_TOKEN)
        receive = cygrpc.ReceiveMessageOperation(_server._EMPTY_FLAGS)
        call.start_server_batch((receive,), on_received)
        return future

    def receive_first(self, messages: Iterator[bytes], call: CancellableCall) -> bytes | None:
        """Return the first message of a call, or None if there is none.

        If the call came through `submit`, the method does not block: `submit` runs a call only when
        its message has arrived.
        """
        if messages.__class__ is ReceivedMessage:
            return next(messages, None)
        return super().receive_first(messages, call)

    def receive_admitted(
        self,
        messages: Iterator[bytes],
        context: grpc.ServicerContext,
        admission: CallAdmission,
    ) -> tuple[bytes | None, AdmittedCall | None]:
        """Return the first message of a call and the admitted call.

        If the call came through `submit`, its message has arrived already, and the executor has
        already admitted or refused the call.
        """
        if isinstance(messages, ReceivedMessage):
            if messages.refusal is not None:
                raise messages.refusal
            return next(messages, None), messages.admitted
        return super().receive_admitted(messages, context, admission)

    def received_ns(self, messages: Iterator[bytes]) -> int:
        """Return when the first message of a call arrived, in ns of `time.perf_counter_ns`.

        The arrival of the message is recorded only for a call that came through `submit`.
        """
        if isinstance(messages, ReceivedMessage):
            return messages.received_ns
        return super().received_ns(messages)

    def peer_name(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> str:
        """Return the name of the client of a call, which `submit` has found out already."""
        if isinstance(messages, ReceivedMessage):
            return messages.peer_name
        return super().peer_name(messages, context)

    def first_context(self, messages: Iterator[bytes]) -> RequestContext:
        """Return the context of a call: that with which it was queued, if it was."""
        if isinstance(messages, ReceivedMessage) and messages.request is not None:
            return messages.request
        return super().first_context(messages)

    def suspend(self, messages: Iterator[bytes], call: object, pending: Pending[Any]) -> None:
        """Free the thread of a call until a result is complete, by raising CallSuspended.

        Only a call that came through `submit` can be suspended.

        The arguments and the exception are those of `CallExecutor.suspend`.
        """
        if isinstance(messages, ReceivedMessage):
            messages.unfinished_call = call
            raise CallSuspended(pending, messages.request.model if messages.request else "")

    def move(self, messages: Iterator[bytes], call: object) -> NoReturn:
        """Let the handler of a call run again in a thread that may block, by raising CallMoved."""
        assert isinstance(messages, ReceivedMessage)
        messages.unfinished_call = call
        raise CallMoved

    def resume(self, messages: Iterator[bytes]) -> Any:
        """Return the state that the handler of a call has passed to `suspend` or `move`."""
        return messages.unfinished_call if isinstance(messages, ReceivedMessage) else None

    def wait_for_turn(
        self,
        messages: Iterator[bytes],
        context: grpc.ServicerContext,
        memory: MemoryReservation | None,
        read_model_name: Callable[[], str],
    ) -> RequestContext:
        """Return the context of a call; if the queue of the model has refused it, raise the error.

        A call that came through `submit` need not wait, because the executor runs its handler only
        when it may run.
        """
        if not isinstance(messages, ReceivedMessage):
            return super().wait_for_turn(messages, context, memory, read_model_name)
        if messages.queue_refusal is not None:
            raise messages.queue_refusal
        assert messages.request is not None
        return messages.request

    def stream_writer(self, context: grpc.ServicerContext, send: SendMessage) -> SendMessage:
        """Return a function that sends the messages of a response stream without blocking.

        The function queues a message if the client has not read the previous messages yet.
        """
        return NonBlockingStreamWriter(context)

    def shutdown(self) -> None:
        """End the threads of the executor. The caller must have stopped the gRPC server."""
        self._reaper.close()
        self.unread_responses.close()
        self._workers.shutdown(wait=False)
        self._poller.close()
        self._resuming_thread.close(_JOIN_SECONDS)

    def _run_or_queue(
        self,
        read_model_name: ReadModelName,
        trackers: dict[str, LatencyTracker],
        future: CallFuture,
        message: ReceivedMessage,
    ) -> None:
        """Run a call if its model may run another request; otherwise queue the call."""
        raw = message.raw or b""
        request = message.request = self.make_request(
            message,
            message.context,
            None if message.admitted is None else message.admitted.memory,
            read_model_name(raw),
        )
        tracker = _find_tracker(trackers, request.model) if _is_small(raw) else None
        ticket = _CallTicket(request, self, future, message, tracker)
        try:
            is_queued = not self._queues.submit(ticket)
        except TpuserveError as error:
            ticket.refuse(error)
            return
        if is_queued:
            self._dequeue_when_cancelled(ticket)
            CLOCK.watch(request)
        elif tracker is None or not self._poller.is_current:
            self._run_in_worker(ticket)
        elif tracker.is_quick:
            self._run_here(ticket, _RUN)
        elif self._queues.only_waits(request.model) and len(self._server_state.rpc_states) > 1:
            # A call that is the only one needs no batch: a worker may run it alone.
            self._run_here(ticket, _WAIT)
        else:
            self._run_in_worker(ticket)

    def _run_quick(self, future: CallFuture, message: ReceivedMessage) -> None:
        """Run a call of a quick method, without a limit on running calls."""
        if _is_small(message.raw or b""):
            future.run()
        else:
            self._workers.run_soon(future.run)

    def _run_here(self, ticket: "_CallTicket", nonblocking: NonBlocking) -> None:
        """Run a call in the thread that polls, or in a worker if it must wait or run long."""
        try:
            with nonblocking:
                ticket.run()
        except CallMoved:
            self._run_in_worker(ticket)
        else:
            self._queues.end(ticket)

    def _run_in_worker(self, ticket: "_CallTicket") -> None:
        try:
            ticket.start()
        except Exception:
            self._queues.end(ticket)
            raise

    def _dequeue_when_cancelled(self, ticket: "_CallTicket") -> None:
        """Let a queued call leave the queue as soon as its client cancels it."""
        cancellation = ticket.context.cancellation

        def dequeue() -> None:
            if self._queues.withdraw(ticket):
                ticket.refuse(cancellation.error)

        cancellation.add_callback(dequeue)
        state = ticket.message.state
        with state.condition:
            if state.callbacks is not None:
                state.callbacks.append(cancellation.cancel)
                return
        cancellation.cancel()


class _CallTicket(RunnableTicket):
    """The entry of a call in `RequestQueues`, in which the call waits until it may run."""

    __slots__ = ("_executor", "_tracker", "future", "message")

    def __init__(
        self,
        request: RequestContext,
        executor: CompletionQueueThreadPool,
        future: CallFuture,
        message: ReceivedMessage,
        tracker: LatencyTracker | None,
    ) -> None:
        super().__init__(request, executor._run_pool)
        self._tracker = tracker
        self._executor = executor
        self.future = future
        self.message = message

    def start(self) -> None:
        self._executor._workers.run_soon(self._executor._queues.run, self)

    def run(self) -> None:
        began = time.perf_counter()
        self.future.run()
        if self._tracker is not None and self.future.is_done:
            is_ok = not self.message.state.aborted
            self._tracker.record(time.perf_counter() - began, is_ok=is_ok)

    def refuse(self, error: TpuserveError) -> None:
        # Run the handler, which ends the call with the error: only the handler removes the call
        # from the requests in flight.
        CLOCK.unwatch(self.context)
        self.message.queue_refusal = error
        self.future.run()


def _find_tracker(trackers: dict[str, LatencyTracker], model: str) -> LatencyTracker:
    tracker = trackers.get(model)
    if tracker is None:
        if len(trackers) >= _MAX_TRACKERS:
            trackers.clear()
        tracker = trackers[model] = LatencyTracker()
    return tracker


def _is_small(raw: bytes) -> bool:
    """Return whether a message cannot take long by its size alone."""
    return len(raw) <= MAX_INLINE_BYTES and compression.find_window_bits(raw) is None
