"""An executor for background work that leaves processor time to requests."""

import contextlib
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

# At this nice value, a thread that competes with a request's thread gets a tenth of the request's
# processor time.
_NICE = 10
# The share of all processors that background work uses at most. Priorities alone do not keep the
# work off the processor on which a request is about to continue.
_PROCESSOR_SHARE = 1 / 8
# The longest pause after a function, however long the function took.
_LONGEST_PAUSE_SECONDS = 0.1

_PROCESSORS = os.cpu_count() or 1


class ThrottledExecutor:
    """Runs work in threads of low priority, with pauses; runs work inline until `enable`.

    Use the executor for work that computes outside of Python. A thread of low priority that holds
    the GIL would delay every other thread.
    """

    def __init__(
        self,
        threads: int,
        processors: int = _PROCESSORS,
        *,
        clock: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Create the executor; its threads start with the first work after `enable`.

        Args:
          threads: how many functions run at the same time.
          processors: how many processors the machine has.
          clock: returns the processor time of the calling thread, in seconds.
          sleep: pauses the calling thread for a number of seconds.
        """
        self._threads = ThreadPoolExecutor(threads, "background", initializer=_lower_priority)
        self._is_enabled = False
        self._clock, self._sleep = clock, sleep
        # The number of seconds of pause for each second of work.
        self._pause_per_second = max(0.0, 1 / (_PROCESSOR_SHARE * processors) - 1)

    def enable(self) -> None:
        """Turn throttling on, once the server answers requests."""
        self._is_enabled = True

    def __call__(self, work: Callable[[], Result]) -> Result:
        """Run a function, wait for its end, and return its result or raise its exception."""
        if not self._is_enabled:
            return work()
        result, work_seconds = self._threads.submit(self._run_timed, work).result()
        self._sleep(min(work_seconds * self._pause_per_second, _LONGEST_PAUSE_SECONDS))
        return result

    def _run_timed(self, work: Callable[[], Result]) -> tuple[Result, float]:
        start = self._clock()
        return work(), self._clock() - start


def _lower_priority() -> None:
    """Lower the priority of the calling thread, on systems with priorities per thread."""
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, max(_NICE, os.getpriority(os.PRIO_PROCESS, 0)))
