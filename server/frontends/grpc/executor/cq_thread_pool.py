"""The executor whose threads poll grpcio's completion queue themselves.

With its public API, grpcio polls for events in one thread, and hands each call to another thread
twice: when the call begins, and when its message has arrived.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import grpc
from grpc import _server
from grpc._cython import cygrpc

from server.admission.memory_budget import MemoryReservation
from server.frontends.grpc.executor.call_admission import AdmittedCall, CallAdmission
from server.frontends.grpc.executor.call_executor import (
    CallExecutor,
    ReadModelName,
    SendMessage,
)
from server.frontends.grpc.executor.call_future import CallFuture
from server.frontends.grpc.executor.stalled_calls import CancellableCall, StalledCallLimits
from server.frontends.grpc.executor.stream_writer import NonBlockingStreamWriter
from server.frontends.grpc.executor.suspension import CallSuspended, ResumingThread
from server.process.thread_pool import ThreadPool
from server.request import CLOCK, RequestContext
from server.scheduling.request_queues import RequestQueues
from server.scheduling.ticket import RunnableTicket
from server.servables.pending import Pending
from tpuserve.errors import TpuserveError

# How long a thread waits for an event of the completion queue, in seconds.
_POLL_SECONDS = 1.0
_MAX_OTHER_THREADS = 4096

logger = logging.getLogger(__name__)


class CompletionQueueThreadPool(CallExecutor):
    """Runs calls in threads that poll gRPC's completion queue for events.

    The number of calls that run at the same time is limited. When all threads run calls, the pool
    adds a thread that polls, so that quick methods are always answered.
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
        self._threads: list[threading.Thread] = []
        self._running = 0
        self._resuming_thread = ResumingThread()
        # The threads for queued gRPC calls that may run because a REST request has ended. Such a
        # call must not run in the thread of the REST request.
        self._other_threads = ThreadPool(_MAX_OTHER_THREADS, "grpc-queued")
        self._lock = threading.Lock()

    def start(self, server: grpc.Server) -> None:
        """Start a grpc.Server that was created with this executor, and the first threads."""
        state = self._server_state = server._state
        with state.lock:
            state.server.start()
            state.stage = _server._ServerStage.STARTED
            _server._request_call(state)
        self._resuming_thread.start()
        for _ in range(2):
            self._add_thread()
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
            behavior.dispatch = _run_now
        elif pool is not None:
            behavior.dispatch = lambda future, message: pool.run_soon(future.run)
        else:
            behavior.dispatch = partial(self._run_or_queue, read_model_name)
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
        message = _ReceivedMessage(event, state, reaper.track(call))
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
        if messages.__class__ is _ReceivedMessage:
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
        if isinstance(messages, _ReceivedMessage):
            if messages.refusal is not None:
                raise messages.refusal
            return next(messages, None), messages.admitted
        return super().receive_admitted(messages, context, admission)

    def received_ns(self, messages: Iterator[bytes]) -> int:
        """Return when the first message of a call arrived, in ns of `time.perf_counter_ns`.

        The arrival of the message is recorded only for a call that came through `submit`.
        """
        if isinstance(messages, _ReceivedMessage):
            return messages.received_ns
        return super().received_ns(messages)

    def peer_name(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> str:
        """Return the name of the client of a call, which `submit` has found out already."""
        if isinstance(messages, _ReceivedMessage):
            return messages.peer_name
        return super().peer_name(messages, context)

    def first_context(self, messages: Iterator[bytes]) -> RequestContext:
        """Return the context of a call: that with which it was queued, if it was."""
        if isinstance(messages, _ReceivedMessage) and messages.request is not None:
            return messages.request
        return super().first_context(messages)

    def suspend(self, messages: Iterator[bytes], call: object, pending: Pending[Any]) -> None:
        """Free the thread of a call until a result is complete, by raising CallSuspended.

        Only a call that came through `submit` can be suspended.

        The arguments and the exception are those of `CallExecutor.suspend`.
        """
        if isinstance(messages, _ReceivedMessage):
            messages.suspended_call = call
            raise CallSuspended(pending, messages.request.model if messages.request else "")

    def resume(self, messages: Iterator[bytes]) -> Any:
        """Return the state that the handler of a suspended call has passed to `suspend`."""
        return messages.suspended_call if isinstance(messages, _ReceivedMessage) else None

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
        if not isinstance(messages, _ReceivedMessage):
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
        self._other_threads.shutdown(wait=False)
        if self._server_state is not None:
            self._server_state.completion_queue.shutdown()
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(_POLL_SECONDS)
        self._resuming_thread.close(_POLL_SECONDS)

    @property
    def size(self) -> int:
        """The number of polling threads.

        The number is one more than the highest number of simultaneous calls so far, but at least
        two.
        """
        return len(self._threads)

    def _run_or_queue(
        self, read_model_name: ReadModelName, future: CallFuture, message: "_ReceivedMessage"
    ) -> None:
        """Run a call now if its model may run another request; otherwise queue the call."""
        request = message.request = self.make_request(
            message,
            message.context,
            None if message.admitted is None else message.admitted.memory,
            read_model_name(message.raw or b""),
        )
        ticket = _CallTicket(request, self, future, message)
        try:
            is_queued = not self._queues.submit(ticket)
        except TpuserveError as error:
            ticket.refuse(error)
            return
        if is_queued:
            self._dequeue_when_cancelled(ticket)
            CLOCK.watch(request)
            return
        with self._lock:
            self._running += 1
            if self._running >= len(self._threads):
                self._try_to_add_thread()
        try:
            self._queues.run(ticket)
        finally:
            with self._lock:
                self._running -= 1

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

    def _try_to_add_thread(self) -> None:
        try:
            self._add_thread()
        except RuntimeError as error:
            # Go on with the existing threads if the system cannot start another one. Calls that
            # arrive while all of them are busy then wait longer.
            logger.warning(
                "%s: only %d of %d gRPC threads run",
                error,
                len(self._threads),
                self._max_concurrent_calls,
            )

    def _add_thread(self) -> None:
        name = f"grpc-{len(self._threads)}"
        thread = threading.Thread(target=self._poll, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _poll(self) -> None:
        while self._poll_once():
            pass

    def _poll_once(self) -> bool:
        """Handle the next event of the completion queue, if one arrives within `_POLL_SECONDS`."""
        state = self._server_state
        event = state.completion_queue.poll(time.time() + _POLL_SECONDS)
        completion_type = event.completion_type
        if completion_type == cygrpc.CompletionType.queue_shutdown:
            return False
        if state.server_deallocated:
            _server._begin_shutdown_once(state)
        if completion_type != cygrpc.CompletionType.queue_timeout:
            self._process(event)
        return True

    def _process(self, event: Any) -> None:
        try:
            if not _server._process_event_and_continue(self._server_state, event):
                # After the last event of a server that was stopped, shut down the completion queue,
                # which ends the other threads.
                self._server_state.completion_queue.shutdown()
        except Exception:
            logger.exception("an event of gRPC cannot be handled")
            self._recover(event)

    def _recover(self, event: Any) -> None:
        """After an exception in the handling of an event, let the server accept further calls."""
        state = self._server_state
        if event.tag is not _server._REQUEST_CALL_TAG:
            return
        with state.lock:
            if state.stage is _server._ServerStage.STARTED and event.tag not in state.due:
                _server._request_call(state)
        if event.success:
            # Cancel the call that the event began, because no handler will answer it.
            event.call.cancel()


class _ReceivedMessage:
    """The request message of a call, and the data that the executor keeps about the call."""

    __slots__ = (
        "_event",
        "admitted",
        "request",
        "peer_name",
        "queue_refusal",
        "received_ns",
        "refusal",
        "state",
        "suspended_call",
    )

    def __init__(self, event: Any, state: Any, peer_name: str) -> None:
        self._event = event
        self.state = state
        self.peer_name = peer_name
        self.admitted: AdmittedCall | None = None
        self.request: RequestContext | None = None
        self.received_ns = 0
        self.refusal: TpuserveError | None = None
        self.suspended_call: object = None
        self.queue_refusal: TpuserveError | None = None

    @property
    def context(self) -> grpc.ServicerContext:
        context: grpc.ServicerContext = _server._Context(self._event, self.state, None)
        return context

    @property
    def raw(self) -> bytes | None:
        """The serialised message; None before it has come, and after `__next__` has returned it."""
        raw: bytes | None = self.state.request
        return raw

    def admit(self, admission: CallAdmission | None) -> None:
        message = self.state.request
        if admission is None or message is None:
            return
        try:
            self.admitted = admission.admit(message, self.peer_name)
        except TpuserveError as error:
            self.refusal = error

    def __iter__(self) -> "_ReceivedMessage":
        return self

    def __next__(self) -> bytes:
        message: bytes | None = self.state.request
        if message is None:
            raise StopIteration
        self.state.request = None
        return message


class _CallTicket(RunnableTicket):
    """The entry of a call in `RequestQueues`, in which the call waits until it may run."""

    __slots__ = ("_executor", "future", "message")

    def __init__(
        self,
        request: RequestContext,
        executor: CompletionQueueThreadPool,
        future: CallFuture,
        message: _ReceivedMessage,
    ) -> None:
        super().__init__(request, executor._run_pool)
        self._executor = executor
        self.future = future
        self.message = message

    def start(self) -> None:
        self._executor._other_threads.run_soon(self._executor._queues.run, self)

    def run(self) -> None:
        self.future.run()

    def refuse(self, error: TpuserveError) -> None:
        # Run the handler, which ends the call with the error: only the handler removes the call
        # from the requests in flight.
        CLOCK.unwatch(self.context)
        self.message.queue_refusal = error
        self.future.run()


def _run_now(future: CallFuture, message: _ReceivedMessage) -> None:
    """Run a call in the current thread, without a limit on running calls."""
    future.run()
