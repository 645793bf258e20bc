"""Work that leaves the processor to requests."""

import contextlib
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

# It gets a tenth of what a request gets where there is not enough for both.
_NICE = 10
# Of all processors, what works at most; the rest of the time it rests. Priorities alone do not keep
# it from where a request is about to go on.
_SHARE = 1 / 8
# After one piece of work the next may begin, however long it was.
_LONGEST_REST_SECONDS = 0.1

_PROCESSORS = os.cpu_count() or 1


class Background:
    """Runs things in threads that others go before, with rests; directly until `begin`.

    It is for what computes outside of Python: who goes last and holds Python's lock would keep
    all the others waiting for it.
    """

    def __init__(
        self,
        threads: int,
        processors: int = _PROCESSORS,
        *,
        clock: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Takes how many things run at once, and how many processors there are.

        Args:
          clock: processor time of the calling thread, in seconds.
          sleep: rests for so many seconds.
        """
        self._threads = ThreadPoolExecutor(threads, "background", initializer=_go_last)
        self._has_begun = False
        self._clock, self._sleep = clock, sleep
        # Seconds for each second of work.
        self._rest = max(0.0, 1 / (_SHARE * processors) - 1)

    def begin(self) -> None:
        """From here on there are requests to go before."""
        self._has_begun = True

    def __call__(self, work: Callable[[], Result]) -> Result:
        """What the work gives, or raises."""
        if not self._has_begun:
            return work()
        result, worked_seconds = self._threads.submit(self._timed, work).result()
        self._sleep(min(worked_seconds * self._rest, _LONGEST_REST_SECONDS))
        return result

    def _timed(self, work: Callable[[], Result]) -> tuple[Result, float]:
        began = self._clock()
        return work(), self._clock() - began


def _go_last() -> None:
    """Has the calling thread go last, where threads have priorities of their own."""
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, max(_NICE, os.getpriority(os.PRIO_PROCESS, 0)))
