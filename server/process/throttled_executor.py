"""An executor for background work that leaves processor time to requests."""

import contextlib
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

# The nice value of the executor's threads. A thread with this value that competes with a request's
# thread gets a tenth of the processor time of the request's thread.
_NICE = 10
# The largest share of the time of all processors that background work uses. The rest are pauses,
# because a low priority alone does not keep the work off the processor on which a request is about
# to continue.
_PROCESSOR_SHARE = 1 / 8
# The longest pause after a function. Without this limit, a function of several seconds would be
# followed by a pause of many seconds.
_LONGEST_PAUSE_SECONDS = 0.1

_PROCESSORS = os.cpu_count() or 1


class ThrottledExecutor:
    """Runs work in threads of low priority, with pauses; until `enable`, in the calling thread.

    Use the executor for work that computes outside of Python. Otherwise a thread of low priority
    could hold the GIL for long and delay every other thread.
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
        # The seconds of pause for each second of work that limit the work to _PROCESSOR_SHARE.
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
