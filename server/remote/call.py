"""A call from a frontend process to the engine process, whose answer may not have arrived yet."""

import math
import threading
from collections.abc import Callable
from typing import Any

from server.dataplane.results import Prediction
from server.remote.channel import Channel
from server.servables import output_size


class RemoteCall:
    """A call from a frontend process to the engine process, and its answer (a future).

    The class implements `server.servables.pending.Completion`.

    Attributes:
      channel: the connection over which the call was sent.
      retry: sends the call again, and returns the answer. It is called if the engine process
        refuses the call, because the inputs were decoded with an outdated signature. None for a
        call without inputs.
    """

    __slots__ = ("_answer", "_callback", "_is_done", "_lock", "_waiter", "channel", "retry")

    def __init__(self, channel: Channel, retry: Callable[[], Any] | None = None) -> None:
        """Create a call that is not answered yet."""
        self.channel = channel
        self.retry = retry
        self._answer: Any = None
        self._is_done = False
        self._callback: Callable[[], object] | None = None
        self._waiter: Any = None
        self._lock = threading.Lock()

    def complete(self, answer: Any) -> None:
        """Set the answer, or an exception, and wake the threads and callbacks that wait for it."""
        with self._lock:
            self._answer = answer
            self._is_done = True
            callback, waiter = self._callback, self._waiter
            # Delete the references to the callback and to `retry`, which form a cycle with this
            # object. Otherwise the arrays of the request would stay in memory until the garbage
            # collector runs.
            self._callback = self.retry = None
        if waiter is not None:
            waiter.release()
        if callback is not None:
            callback()

    def add_done_callback(self, callback: Callable[[], object]) -> None:
        """Call a function, in any thread, when the answer has arrived.

        Only one function can be added.
        """
        with self._lock:
            if not self._is_done:
                self._callback = callback
                return
        callback()

    def count_values(self) -> int:
        """Return about how many values the outputs in the answer have; 0 if it is an exception.

        The answer must have arrived.
        """
        answer = self._answer
        if isinstance(answer, Prediction):
            return output_size.count_values(answer.outputs.values())
        return sum(map(_count_values, answer)) if isinstance(answer, tuple) else 0

    def finish(self) -> Any:
        """Wait for the answer, and return it; raise it if it is an exception."""
        if not self._is_done:
            waiter = threading.Lock()
            waiter.acquire()
            with self._lock:
                if self._is_done:
                    waiter.release()
                self._waiter = waiter
            waiter.acquire()
        answer = self._answer
        if isinstance(answer, BaseException):
            raise answer
        return answer


def _count_values(part: Any) -> int:
    """Return about how many values a part of a message has: packed arrays, or a pickled result."""
    if isinstance(part, bytes):
        return len(part) // output_size.BYTES_PER_VALUE
    if not isinstance(part, dict):
        return 0
    return sum(
        output_size.count_strings(content) if isinstance(content, list) else math.prod(shape)
        for _, shape, content in part.values()
    )
