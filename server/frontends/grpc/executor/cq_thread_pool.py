"""The executor whose threads poll grpcio's completion queue themselves.

grpcio has one thread that polls for events, and hands each call to another thread twice: when the
call begins, and when its message has arrived. On CPython each hand-over costs as much as a small
call. Here several threads poll, and the thread that gets the event of a message also answers the
call, as in the servers of gRPC for C++. docs/performance.md has the measured gain.

This module uses grpcio's private API. `grpcio_compat.supports_direct_polling` checks that the
installed grpcio has the API that this module needs.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
from grpc import _server
from grpc._cython import cygrpc

from server.frontends.grpc.executor.call_executor import CallExecutor, SendMessage
from server.frontends.grpc.executor.call_future import CallFuture
from server.frontends.grpc.executor.single_poller import SinglePollerMode
from server.frontends.grpc.executor.stalled_calls import MESSAGE_TIMEOUT_SECONDS, CancellableCall
from server.frontends.grpc.executor.stream_writer import NonBlockingStreamWriter

# The longest time for which a thread waits for an event. After it, the thread checks whether the
# grpc.Server was deleted without a call of its method `stop`.
_POLL_SECONDS = 1.0

logger = logging.getLogger(__name__)


class CompletionQueueThreadPool(CallExecutor):
    """Runs a bounded number of calls at a time in threads that poll for gRPC's events.

    The number of polling threads is always one more than the number of calls that run, so that
    quick methods are answered while all other threads are busy. As long as all calls are quick, a
    single thread polls and answers the calls (`SinglePollerMode`). No thread waits for the first
    message of a call.
    """

    def __init__(
        self,
        max_concurrent_calls: int,
        message_timeout_seconds: float = MESSAGE_TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the executor without threads; arguments as in `CallExecutor`."""
        super().__init__(max_concurrent_calls, message_timeout_seconds, clock)
        self._server_state: Any = None
        self._threads: list[threading.Thread] = []
        self._running = 0
        self._single_poller = SinglePollerMode()
        # The calls that wait for a thread. An OrderedDict, because a cancelled call is removed from
        # any position.
        self._queue: OrderedDict[CallFuture, bool] = OrderedDict()
        self._lock = threading.Lock()

    def start(self, server: grpc.Server) -> None:
        """Start a server that was created with this executor, and two threads that poll."""
        state = self._server_state = server._state
        with state.lock:
            state.server.start()
            state.stage = _server._ServerStage.STARTED
            _server._request_call(state)
        for _ in range(2):
            self._add_thread()
        self._reaper.start()

    def register(
        self,
        behavior: Any,
        *,
        pool: futures.ThreadPoolExecutor | None = None,
        is_quick: bool = False,
    ) -> None:
        """Set the threads that run a method; arguments as in `CallExecutor.register`."""
        if is_quick:
            behavior.dispatch = _run_now
        elif pool is not None:
            behavior.dispatch = lambda future, state: pool.submit(future.run)
        else:
            behavior.dispatch = self._run_or_queue

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
          run: grpcio's function that runs another function in the context of a call.
          target: grpcio's function that calls the behavior and sends the response.
          event: the event with which the call began.
          state: the state of the call.
          behavior: the function that implements the method.
          unused_argument: grpcio's iterator of messages. It is not used, because its `next` blocks
            a thread.
          serializers: the deserialiser and the serialiser of the method.
          kwargs: further arguments of grpcio, which are not used.
        """
        message = _ReceivedMessage(state)
        future = CallFuture(run, (target, event, state, behavior, lambda: message, *serializers))
        call = event.call
        on_grpcio_received = _server._receive_message(state, call, None)
        reaper = self._reaper

        def on_received(received: Any) -> Any:
            finished = on_grpcio_received(received)
            reaper.untrack(call)
            try:
                behavior.dispatch(future, state)
            except Exception:
                # The call cannot run, for example because no thread can be started. Cancel the
                # call, because no handler will answer it.
                logger.exception("a call cannot be run")
                call.cancel()
            return finished

        reaper.track(call)
        state.due.add(_server._RECEIVE_MESSAGE_TOKEN)
        receive = cygrpc.ReceiveMessageOperation(_server._EMPTY_FLAGS)
        call.start_server_batch((receive,), on_received)
        return future

    def receive_first(self, messages: Iterator[bytes], call: CancellableCall) -> bytes | None:
        """Return the first message of a call.

        For a call that came through `submit`, the method returns at once: `submit` runs a call only
        when its message has arrived.
        """
        if messages.__class__ is _ReceivedMessage:
            return next(messages, None)
        return super().receive_first(messages, call)

    def stream_writer(self, context: grpc.ServicerContext, send: SendMessage) -> SendMessage:
        """Return a function that queues messages instead of waiting until the client reads."""
        return NonBlockingStreamWriter(context)

    def shutdown(self) -> None:
        """End the threads of the executor. The caller must have stopped the gRPC server."""
        self._reaper.close()
        self._single_poller.close()
        if self._server_state is not None:
            self._server_state.completion_queue.shutdown()
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(_POLL_SECONDS)

    @property
    def size(self) -> int:
        """The number of threads: one more than the highest number of simultaneous calls so far."""
        return len(self._threads)

    def _run_or_queue(self, future: CallFuture, state: Any) -> None:
        """Run a call, then the queued calls; if the limit of calls is reached, queue the call."""
        with self._lock:
            is_queued = self._running >= self._max_concurrent_calls
            if is_queued:
                self._queue[future] = True
            else:
                self._running += 1
                if self._running >= len(self._threads):
                    self._try_to_add_thread()
        if is_queued:
            self._dequeue_when_cancelled(future, state)
            return
        while True:
            future.run()
            with self._lock:
                if not self._queue:
                    self._running -= 1
                    return
                future, _ = self._queue.popitem(last=False)

    def _dequeue_when_cancelled(self, future: CallFuture, state: Any) -> None:
        """Remove a queued call, and release its admission slot, as soon as the client cancels."""

        def dequeue() -> None:
            with self._lock:
                was_queued = self._queue.pop(future, False)
            if was_queued:
                # Run the handler of the cancelled call, because only the handler releases the
                # admission slot. The handler sees that the call has ended, and returns at once.
                future.run()

        with state.condition:
            if state.callbacks is not None:
                state.callbacks.append(dequeue)
                return
        dequeue()

    def _try_to_add_thread(self) -> None:
        try:
            self._add_thread()
        except RuntimeError as error:
            # Go on with the existing threads; a call that finds no free thread waits for one.
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
        try:
            while self._poll_once():
                pass
        finally:
            # End single-poller mode when this thread ends. If this thread was the only poller, the
            # other threads would otherwise wait forever for their turn.
            self._single_poller.deactivate()

    def _poll_once(self) -> bool:
        """Handle the next event, if one arrives in time; return whether the thread must poll on."""
        self._single_poller.wait_turn()
        state = self._server_state
        event = state.completion_queue.poll(time.time() + _POLL_SECONDS)
        completion_type = event.completion_type
        if completion_type == cygrpc.CompletionType.queue_shutdown:
            return False
        if state.server_deallocated:
            _server._begin_shutdown_once(state)
        if completion_type != cygrpc.CompletionType.queue_timeout:
            began = self._single_poller.begin_event()
            try:
                self._process(event)
            finally:
                self._single_poller.end_event(began)
        return True

    def _process(self, event: Any) -> None:
        try:
            if not _server._process_event_and_continue(self._server_state, event):
                # This was the last event of the server. Shut down the completion queue, which ends
                # the other threads.
                self._server_state.completion_queue.shutdown()
        except Exception:
            logger.exception("an event of gRPC cannot be handled")
            self._recover(event)

    def _recover(self, event: Any) -> None:
        """Keep accepting calls after an exception in the handling of an event that began a call.

        grpcio requests the next call only while it handles the event that began the previous call.
        If an exception prevents that, this method requests the next call, and cancels the call
        whose event failed. Events of other kinds need nothing.
        """
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
    """An iterator over the one message that a call has received; empty if no message came."""

    __slots__ = ("_state",)

    def __init__(self, state: Any) -> None:
        self._state = state

    def __iter__(self) -> "_ReceivedMessage":
        return self

    def __next__(self) -> bytes:
        message: bytes | None = self._state.request
        if message is None:
            raise StopIteration
        self._state.request = None
        return message


def _run_now(future: CallFuture, state: Any) -> None:
    """Run a call in the current thread."""
    future.run()
