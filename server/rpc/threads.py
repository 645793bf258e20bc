"""The threads that calls are answered in: few, and not to be held up by slow senders."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, Protocol

# A thread that has waited so long for a message is made up for by another one.
_SLOW_SECONDS = 0.1

# A message that has not arrived by then is given up, and its call with it.
MESSAGE_SECONDS = 60.0

logger = logging.getLogger(__name__)


class Call(Protocol):
    """A call that has begun."""

    def cancel(self) -> object:
        """Ends it."""


class Threads:
    """Runs calls, so many at a time at most.

    Takes the place of a ThreadPoolExecutor under a gRPC server, which uses `submit` and
    `add_done_callback` alone: the locks of a Future would cost a tenth of a small call.

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
        """Starts the threads.

        Args:
          count: of threads that work, rather than wait for a slow message.
          message_seconds: how long a message may take to arrive.
          clock: in seconds; only differences count.
        """
        self._count = count
        self._message_seconds = message_seconds
        self._clock = clock
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._waiting: dict[Call, float] = {}
        self._size = 0
        self._lock = threading.Lock()
        self._is_shut_down = threading.Event()
        for _ in range(count):
            self._add()
        threading.Thread(target=self._watch, name="grpc-watch", daemon=True).start()

    def submit(self, function: Callable[..., object], *args: Any) -> "_Task":
        """Has a function called in one of the threads."""
        task = _Task(function, args)
        self._tasks.put(task)
        if self._waiting:
            self._lend()
        return task

    def receive(self, messages: Iterator[bytes], call: Call) -> bytes | None:
        """The first message of a call, waited for in the calling thread; None if it ends before.

        Raises:
          grpc.RpcError: the call was cancelled, by `look` or by the client.
        """
        self._waiting[call] = self._clock()
        try:
            return next(messages, None)
        finally:
            del self._waiting[call]

    def look(self) -> None:
        """Makes up for threads that wait for slow messages, and gives up the slowest ones."""
        self._lend()
        overdue = self._clock() - self._message_seconds
        for call, since in list(self._waiting.items()):
            if since < overdue:
                logger.warning("a call is cancelled: its message has not arrived in time")
                call.cancel()

    def shutdown(self) -> None:
        """Ends the threads, each after what it is at."""
        self._is_shut_down.set()
        for _ in range(self._size):
            self._tasks.put(None)

    @property
    def size(self) -> int:
        """The number of threads, those that are lent among them."""
        return self._size

    def _watch(self) -> None:
        while not self._is_shut_down.wait(1):
            self.look()

    def _lend(self) -> None:
        while self._tasks.qsize() and self._size < self._wanted():
            self._add()

    def _wanted(self) -> int:
        since = self._clock() - _SLOW_SECONDS
        # A list, since others come and go meanwhile.
        return self._count + sum(each < since for each in list(self._waiting.values()))

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


class _Task:
    """A function to call, and whom to tell once that is done."""

    __slots__ = ("_args", "_callbacks", "_function", "_is_done")

    def __init__(self, function: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._function = function
        self._args = args
        self._callbacks: list[Callable[[_Task], object]] = []
        self._is_done = False

    def add_done_callback(self, callback: Callable[["_Task"], object]) -> None:
        """Has the callback called when the function has returned, or now if it has."""
        self._callbacks.append(callback)
        if self._is_done:
            self._tell()

    def run(self) -> None:
        """Calls the function, in the calling thread."""
        try:
            self._function(*self._args)
        except Exception:
            logger.exception("a call has failed")
        finally:
            self._args = ()
            self._is_done = True
            self._tell()

    def _tell(self) -> None:
        # Popping is atomic, so that of two threads here only one calls.
        while self._callbacks:
            try:
                callback = self._callbacks.pop()
            except IndexError:
                return
            callback(self)
