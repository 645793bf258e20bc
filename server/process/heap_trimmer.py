"""Returns free memory of the heap to the operating system: after large requests, and unloads."""

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


# The shortest time between two garbage collections after unloads, in seconds.
_COLLECTION_SECONDS = 10.0


class UnloadTrimmer:
    """Returns the memory of unloaded models to the operating system.

    The variables of a model are free as soon as it is closed. A part of its graph is free only
    after a garbage collection, which stops all requests for 0.1 ms for each loaded model. So many
    unloads in a row share a collection.

    Args:
      collect: runs the garbage collector, and trims the heap.
      trim: trims the heap without a garbage collection.
    """

    def __init__(
        self,
        collect: Callable[[], object] = malloc.trim_heap,
        trim: Callable[[], object] = malloc.trim_free_memory,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._collect = collect
        self._trim = trim
        self._clock = clock
        self._next_collection = -math.inf
        self._alarm = Alarm(self.collect, "unload-trim", clock)
        self._alarm.start()

    @property
    def next_collection(self) -> float:
        """When the garbage of the last unload is collected, in seconds of the clock."""
        return self._alarm.time

    def note_unload(self) -> None:
        """Return the memory that a model has freed, and let its garbage be collected soon."""
        self._trim()
        self._alarm.set(self._next_collection)

    def collect(self) -> float:
        """Collect the garbage; return when to call again: after the next unload."""
        self._next_collection = self._clock() + _COLLECTION_SECONDS
        self._collect()
        return math.inf

    def close(self) -> None:
        """End the thread."""
        self._alarm.close()
