"""Work that leaves the processor to requests."""

import contextlib
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

# It gets a tenth of what a request gets where there is not enough for both.
_NICE = 10


class Background:
    """Runs things in threads that others go before; directly until `begin`.

    It is for what computes outside of Python: who goes last and holds Python's lock would keep
    all the others waiting for it.
    """

    def __init__(self, threads: int) -> None:
        """Takes how many things run at once."""
        self._threads = ThreadPoolExecutor(threads, "background", initializer=_go_last)
        self._has_begun = False

    def begin(self) -> None:
        """From here on there are requests to go before."""
        self._has_begun = True

    def __call__(self, work: Callable[[], Result]) -> Result:
        """What the work gives, or raises."""
        if not self._has_begun:
            return work()
        return self._threads.submit(work).result()


def _go_last() -> None:
    """Has the calling thread go last, where threads have priorities of their own."""
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, max(_NICE, os.getpriority(os.PRIO_PROCESS, 0)))
