"""The executor that uses only grpcio's public API: a pool of threads with a queue of calls."""

import threading
import time
from collections.abc import Callable
from concurrent import futures
from queue import SimpleQueue
from typing import Any

import grpc

from server.frontends.grpc.executor.call_executor import CallExecutor, SendMessage
from server.frontends.grpc.executor.call_future import CallFuture
from server.frontends.grpc.executor.stalled_calls import MESSAGE_TIMEOUT_SECONDS

# After a thread has waited for this time for the first message of its call, the pool adds another
# thread, which runs other calls meanwhile.
_SLOW_MESSAGE_SECONDS = 0.1
# The number of threads for methods registered with `is_quick`. Few threads suffice, because such a
# method takes long only if its request message is late.
_QUICK_THREADS = 4


class DefaultThreadPool(CallExecutor):
    """Runs a bounded number of calls at a time, each in a thread that also awaits its message.

    With a plain ThreadPoolExecutor, a few clients could block all threads by beginning calls and
    sending no message. This class adds a thread for each thread that waits long for a message, and
    cancels a call whose message has not arrived within `message_timeout_seconds`.
    """

    def __init__(
        self,
        max_concurrent_calls: int,
        message_timeout_seconds: float = MESSAGE_TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the executor and start its threads; arguments as in `CallExecutor`."""
        super().__init__(max_concurrent_calls, message_timeout_seconds, clock)
        self._queue: SimpleQueue[CallFuture | None] = SimpleQueue()
        self._quick_pool = futures.ThreadPoolExecutor(_QUICK_THREADS, "grpc-quick")
        self._size = 0
        self._lock = threading.Lock()
        for _ in range(max_concurrent_calls):
            self._add_thread()
        self._reaper.start(self.handle_stalled_calls)

    def start(self, server: grpc.Server) -> None:
        """Start a server that was created with this executor."""
        server.start()

    def register(
        self,
        behavior: Any,
        *,
        pool: futures.ThreadPoolExecutor | None = None,
        is_quick: bool = False,
    ) -> None:
        """Set the threads that run a method; arguments as in `CallExecutor.register`."""
        method_pool = self._quick_pool if is_quick else pool
        if method_pool is not None:
            behavior.experimental_thread_pool = method_pool

    def submit(self, function: Callable[..., object], *args: Any, **kwargs: Any) -> CallFuture:
        """Run a function in one of the executor's threads. Only grpcio calls this method."""
        future = CallFuture(function, args)
        self._queue.put(future)
        if self._reaper.has_waiting_calls:
            self._add_replacements()
        return future

    def stream_writer(self, context: grpc.ServicerContext, send: SendMessage) -> SendMessage:
        """Return `send`, grpcio's own function, which blocks while the client does not read."""
        return send

    def handle_stalled_calls(self) -> None:
        """Add threads in place of those that wait for a message; cancel calls that time out."""
        self._add_replacements()
        self._reaper.cancel_stalled()

    def shutdown(self) -> None:
        """End the threads of the executor, after the calls that are already queued."""
        self._reaper.close()
        self._quick_pool.shutdown(wait=False)
        for _ in range(self._size):
            self._queue.put(None)

    @property
    def size(self) -> int:
        """The number of threads, including those added while others wait for a first message."""
        return self._size

    def _add_replacements(self) -> None:
        while self._queue.qsize() and self._size < self._target_size():
            self._add_thread()

    def _target_size(self) -> int:
        stalled = self._reaper.calls_waiting_longer_than(_SLOW_MESSAGE_SECONDS)
        return self._max_concurrent_calls + len(stalled)

    def _add_thread(self) -> None:
        with self._lock:
            self._size += 1
        threading.Thread(target=self._run_calls, name=f"grpc-{self._size}", daemon=True).start()

    def _run_calls(self) -> None:
        while not self._leave_if_surplus():
            future = self._queue.get()
            if future is None:
                break
            future.run()
            # Delete the future, which refers to a whole message. Otherwise the message would stay
            # in memory until this thread runs its next call.
            del future

    def _leave_if_surplus(self) -> bool:
        """Return whether the current thread is one too many and must end; update the count."""
        if self._size <= self._max_concurrent_calls:
            return False
        with self._lock:
            if self._size <= self._target_size():
                return False
            self._size -= 1
            return True
