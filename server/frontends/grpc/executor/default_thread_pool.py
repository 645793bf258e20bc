"""The threads that calls are answered in with any grpcio: a pool that calls are handed to."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from queue import SimpleQueue
from typing import Any

import grpc

from server.frontends.grpc.executor.call_future import CallFuture
from server.frontends.grpc.executor.stalled_calls import MESSAGE_SECONDS, Call, StalledCallReaper

# A thread that has waited so long for a message is made up for by another one.
_SLOW_SECONDS = 0.1
# What is quick waits for nothing but its message.
_QUICK_THREADS = 4


class DefaultThreadPool:
    """Runs calls, so many at a time at most.

    Takes the place of a ThreadPoolExecutor under a gRPC server, which uses `submit` and
    `add_done_callback` alone.

    A thread waits for the message of its call, so that with a plain pool as many clients as there
    are threads stop a server by beginning calls and sending nothing. Here who waits for long is
    made up for by a thread that is lent, and in the end its call is cancelled.
    """

    def __init__(
        self,
        count: int,
        message_seconds: float = MESSAGE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts the threads; arguments as of `threads.make`."""
        self._count = count
        self._waiting = StalledCallReaper(message_seconds, clock)
        self._tasks: SimpleQueue[CallFuture | None] = SimpleQueue()
        self._quick = futures.ThreadPoolExecutor(_QUICK_THREADS, "grpc-quick")
        self._size = 0
        self._lock = threading.Lock()
        for _ in range(count):
            self._add()
        self._waiting.watch(self.look)

    def start(self, server: grpc.Server) -> None:
        """Has a server that was made with these threads begin to accept calls."""
        server.start()

    def register(
        self,
        behavior: Any,
        *,
        pool: futures.ThreadPoolExecutor | None = None,
        is_quick: bool = False,
    ) -> None:
        """Says where a method runs; arguments as of `CallExecutor.register`."""
        chosen = self._quick if is_quick else pool
        if chosen is not None:
            behavior.experimental_thread_pool = chosen

    def submit(self, function: Callable[..., object], *args: Any) -> CallFuture:
        """Has a function called in one of the threads; called by grpcio."""
        task = CallFuture(function, args)
        self._tasks.put(task)
        if self._waiting:
            self._lend()
        return task

    def receive_first(self, messages: Iterator[bytes], call: Call) -> bytes | None:
        """The first message of a call, waited for in the calling thread; None if it ends before.

        Raises:
          grpc.RpcError: the call was cancelled, by `look` or by the client.
        """
        with self._waiting.of(call):
            return next(messages, None)

    def stream_writer(
        self, context: Any, send: Callable[[bytes | None], object]
    ) -> Callable[[bytes | None], object]:
        """What sends the messages of a stream; arguments as of `CallExecutor.stream_writer`."""
        return send

    def look(self) -> None:
        """Makes up for threads that wait for slow messages, and gives up the slowest ones."""
        self._lend()
        self._waiting.cancel_stalled()

    def shutdown(self) -> None:
        """Ends the threads, each after what it is at."""
        self._waiting.close()
        self._quick.shutdown(wait=False)
        for _ in range(self._size):
            self._tasks.put(None)

    @property
    def size(self) -> int:
        """The number of threads, those that are lent among them."""
        return self._size

    def _lend(self) -> None:
        while self._tasks.qsize() and self._size < self._wanted():
            self._add()

    def _wanted(self) -> int:
        return self._count + len(self._waiting.longer_than(_SLOW_SECONDS))

    def _add(self) -> None:
        with self._lock:
            self._size += 1
        threading.Thread(target=self._work, name=f"grpc-{self._size}", daemon=True).start()

    def _work(self) -> None:
        while not self._is_too_many():
            task = self._tasks.get()
            if task is None:
                break
            task.run()
            # Not to be kept alive until the next one comes: it holds a whole message.
            del task

    def _is_too_many(self) -> bool:
        if self._size <= self._count:
            return False
        with self._lock:
            if self._size <= self._wanted():
                return False
            self._size -= 1
            return True
