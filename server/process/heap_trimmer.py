"""Returns free memory of the heap to the operating system when large requests have ended."""

import math
import time
from collections.abc import Callable

from server.process import malloc
from server.process.alarm import Alarm

# How long no large request must have ended, in seconds. Until then, the next large request reuses
# the memory, which is faster than getting new pages.
_IDLE_SECONDS = 10.0


class HeapTrimmer:
    """Trims the heap once, in a thread of its own, when no large request has ended for a while."""

    def __init__(
        self,
        trim: Callable[[], object] = malloc.trim_free_memory,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._trim = trim
        self._clock = clock
        self._last_end = -math.inf
        self._alarm = Alarm(self.trim_if_idle, "heap-trim", clock)

    def note_large_request(self) -> None:
        """Record that a large request has ended, and has freed its memory."""
        self._last_end = self._clock()
        self._alarm.set(self._last_end + _IDLE_SECONDS)

    def trim_if_idle(self) -> float:
        """Trim the heap, unless a large request has ended lately; return when to call again."""
        due = self._last_end + _IDLE_SECONDS
        if self._clock() < due:
            return due
        self._trim()
        return math.inf

    def start(self) -> None:
        """Start the thread."""
        self._alarm.start()

    def close(self) -> None:
        """End the thread."""
        self._alarm.close()
