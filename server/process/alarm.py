"""A thread that calls a function at the earliest of several times."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)


class Alarm:
    """Calls a function in a thread of its own, at the times that `set` and the function choose.

    Queues use the function to end the requests whose time limit has passed. Thread-safe.

    Args:
      ring: the function. It returns the time at which it must be called again, in seconds of
        the clock; infinite for no such time.
    """

    def __init__(
        self,
        ring: Callable[[], float],
        name: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ring = ring
        self._name = name
        self._clock = clock
        self._time = math.inf
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._condition = threading.Condition(threading.Lock())

    @property
    def time(self) -> float:
        """The time of the next call of the function, in seconds of the clock; infinite for none."""
        return self._time

    def set(self, moment: float) -> None:
        """Call the function at a time at the latest.

        The caller must first store the data for which the function is called.
        """
        # Compare without the lock, because most requests end later than an earlier request.
        if moment >= self._time:
            return
        with self._condition:
            if moment < self._time:
                self._time = moment
                self._condition.notify()

    def start(self) -> None:
        """Start the thread, unless it runs already."""
        with self._condition:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                thread.start()
                self._thread = thread

    def close(self) -> None:
        """End the thread that `start` has started."""
        with self._condition:
            self._is_closed = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while self._wait():
            # Other requests rely on the thread, so it continues after an error.
            with log_exceptions():
                self.set(self._ring())

    def _wait(self) -> bool:
        """Wait until the function must be called, and return whether the alarm is still open."""
        with self._condition:
            while not self._is_closed:
                seconds = self._time - self._clock()
                if seconds <= 0:
                    self._time = math.inf
                    return True
                self._condition.wait(min(seconds, threading.TIMEOUT_MAX))
        return False


@contextmanager
def log_exceptions() -> Iterator[None]:
    """Log an exception of the `with` body, and continue after the body.

    The body ends one or several requests at their time limits. Its failure must not keep other
    requests from ending.
    """
    try:
        yield
    except Exception:
        logger.exception("a function that ends requests at their time limits has failed")
