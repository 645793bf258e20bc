"""The threads that calls are answered in where grpcio is made as expected: those that wait for it.

grpcio has one thread that waits for events, and others that calls are handed to, twice: once to
begin with, and once when the message is there. On CPython each handing-over costs as much as a
small call. Here some threads wait for events, and a call is answered by the one that its message
comes to, as in gRPC's own servers in C++.

That uses what is grpcio's own matter; `grpcio.supports_direct_polling` says whether it can be used.
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

from server.frontends.grpc.executor.call_future import CallFuture
from server.frontends.grpc.executor.single_poller import SinglePollerMode
from server.frontends.grpc.executor.stalled_calls import MESSAGE_SECONDS, StalledCallReaper
from server.frontends.grpc.executor.stream_writer import NonBlockingStreamWriter

# How often a server that was let go of without having been stopped is looked for.
_POLL_SECONDS = 1.0

logger = logging.getLogger(__name__)


class CompletionQueueThreadPool:
    """Runs calls, so many at a time at most; does what `CallExecutor` does, for less.

    One thread more than calls run waits for events, so that what is quick is answered while all
    others are busy; but as long as all calls are quick, one thread answers them alone. No thread
    waits for a message.
    """

    def __init__(
        self,
        count: int,
        message_seconds: float = MESSAGE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Takes how many calls may run at once; arguments as of `CallExecutor`."""
        self._count = count
        self._waiting = StalledCallReaper(message_seconds, clock)
        self._state: Any = None
        self._threads: list[threading.Thread] = []
        self._running = 0
        self._solo = SinglePollerMode()
        # Each of them may leave it at any time.
        self._queue: OrderedDict[CallFuture, bool] = OrderedDict()
        self._lock = threading.Lock()

    def start(self, server: grpc.Server) -> None:
        """Begins to accept calls of a server that was made with these threads."""
        state = self._state = server._state
        with state.lock:
            state.server.start()
            state.stage = _server._ServerStage.STARTED
            _server._request_call(state)
        for _ in range(2):
            self._add()
        self._waiting.watch()

    def register(
        self,
        behavior: Any,
        *,
        pool: futures.ThreadPoolExecutor | None = None,
        is_quick: bool = False,
    ) -> None:
        """Says where a method runs; arguments as of `CallExecutor.register`."""
        behavior.runs = CallFuture.run
        if is_quick:
            behavior.runs = _run_now
        elif pool is not None:
            behavior.runs = lambda task, state: pool.submit(task.run)
        else:
            behavior.runs = self._run

    def submit(
        self,
        run: Callable[..., object],
        target: Callable[..., object],
        event: Any,
        state: Any,
        behavior: Any,
        unused_argument: Any,
        *serializers: Any,
    ) -> CallFuture:
        """Has a call answered once its message is there; called by grpcio."""
        message = _Message(state)
        task = CallFuture(run, (target, event, state, behavior, lambda: message, *serializers))
        call = event.call
        receive = _server._receive_message(state, call, None)
        waiting = self._waiting

        def arrived(received: Any) -> Any:
            told = receive(received)
            waiting.end(call)
            try:
                behavior.runs(task, state)
            except Exception:
                # As where no thread can be started. Nobody will answer it.
                logger.exception("a call cannot be taken on")
                call.cancel()
            return told

        waiting.begin(call)
        state.due.add(_server._RECEIVE_MESSAGE_TOKEN)
        call.start_server_batch((cygrpc.ReceiveMessageOperation(_server._EMPTY_FLAGS),), arrived)
        return task

    def receive_first(self, messages: Iterator[bytes], call: Any) -> bytes | None:
        """The first message of a call; None if it has ended before."""
        if messages.__class__ is _Message:
            return next(messages, None)
        with self._waiting.of(call):
            return next(messages, None)

    def stream_writer(
        self, context: Any, send: Callable[[bytes | None], object]
    ) -> Callable[[bytes | None], object]:
        """What sends the messages of a stream; arguments as of `CallExecutor.stream_writer`."""
        return NonBlockingStreamWriter(context)

    def shutdown(self) -> None:
        """Ends the threads; after the server has stopped."""
        self._waiting.close()
        self._solo.close()
        if self._state is not None:
            self._state.completion_queue.shutdown()
        with self._lock:
            threads = list(self._threads)
        for each in threads:
            each.join(_POLL_SECONDS)

    @property
    def size(self) -> int:
        """The number of threads: one more than calls have run at a time."""
        return len(self._threads)

    def _run(self, task: CallFuture, state: Any) -> None:
        with self._lock:
            is_queued = self._running >= self._count
            if is_queued:
                self._queue[task] = True
            else:
                self._running += 1
                if self._running >= len(self._threads):
                    self._try_to_add()
        if is_queued:
            self._drop_at_end(task, state)
            return
        while True:
            task.run()
            with self._lock:
                if not self._queue:
                    self._running -= 1
                    return
                task, _ = self._queue.popitem(last=False)

    def _drop_at_end(self, task: CallFuture, state: Any) -> None:
        """Has a call that ends in the queue leave it, and the place that it takes elsewhere."""

        def drop() -> None:
            with self._lock:
                was_queued = self._queue.pop(task, False)
            if was_queued:
                # It sees that nobody waits for an answer any more.
                task.run()

        with state.condition:
            if state.callbacks is not None:
                state.callbacks.append(drop)
                return
        drop()

    def _try_to_add(self) -> None:
        try:
            self._add()
        except RuntimeError as error:
            # What comes meanwhile waits for those that there are.
            logger.warning("%s, so fewer calls run at once than may", error)

    def _add(self) -> None:
        name = f"grpc-{len(self._threads)}"
        thread = threading.Thread(target=self._poll, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _poll(self) -> None:
        try:
            while self._poll_once():
                pass
        finally:
            # Others are not to wait for a thread that has ended.
            self._solo.stop()

    def _poll_once(self) -> bool:
        """Deals with the next event, if one comes in time; False if there will be no more."""
        self._solo.wait_turn()
        state = self._state
        event = state.completion_queue.poll(time.time() + _POLL_SECONDS)
        kind = event.completion_type
        if kind == cygrpc.CompletionType.queue_shutdown:
            return False
        if state.server_deallocated:
            _server._begin_shutdown_once(state)
        if kind != cygrpc.CompletionType.queue_timeout:
            began = self._solo.begin()
            try:
                self._process(event)
            finally:
                self._solo.end(began)
        return True

    def _process(self, event: Any) -> None:
        try:
            if not _server._process_event_and_continue(self._state, event):
                # There will be no more: the others are to know, too.
                self._state.completion_queue.shutdown()
        except Exception:
            logger.exception("an event of gRPC's cannot be handled")
            self._go_on(event)

    def _go_on(self, event: Any) -> None:
        """Has the next call come, which gRPC asks for once it has dealt with the one before."""
        state = self._state
        if event.tag is not _server._REQUEST_CALL_TAG:
            return
        with state.lock:
            if state.stage is _server._ServerStage.STARTED and event.tag not in state.due:
                _server._request_call(state)
        if event.success:
            # Nobody will answer it.
            event.call.cancel()


class _Message:
    """The message that has arrived, as an iterator of one or none."""

    __slots__ = ("_state",)

    def __init__(self, state: Any) -> None:
        self._state = state

    def __iter__(self) -> "_Message":
        return self

    def __next__(self) -> bytes:
        message: bytes | None = self._state.request
        if message is None:
            raise StopIteration
        self._state.request = None
        return message


def _run_now(task: CallFuture, state: Any) -> None:
    task.run()
