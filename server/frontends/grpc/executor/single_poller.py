"""One thread that answers all calls, as long as they are quick: others would take turns with it.

On CPython threads that wait for events together hand the interpreter to each other with each call,
which costs more than a small call does. Where calls wait for something, or compute for long,
others must go on meanwhile.
"""

import threading
import time
from collections.abc import Callable

# So many in a row are quick before one thread goes on alone.
_QUICK_CALLS = 64
_QUICK_SECONDS = 0.0003
# For the one that is alone, one call that is not quick takes back as many that were: what else
# the machine does makes some of all calls slow.
_SLOW_WEIGHT = 8
# How long others may be kept waiting by a call that turns out not to be quick.
_TICK_SECONDS = 0.002
# So many ticks without an event, and nobody needs to look any more.
_IDLE_TICKS = 10


class SinglePollerMode:
    """Says which threads are to wait for events: all of them, or one alone."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Takes what tells the time, in seconds; only differences count."""
        self._clock = clock
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._quick_calls = 0
        self._busy_since: float | None = None
        self._events = 0
        self._is_closed = False
        self._is_watched = threading.Lock()
        self._is_over = threading.Event()
        self._is_over.set()

    @property
    def is_on(self) -> bool:
        """Whether one thread is alone."""
        return self._thread is not None

    def begin(self) -> float:
        """The calling thread has an event to deal with; returns the time."""
        now = self._clock()
        if self._thread == threading.get_ident():
            self._busy_since = now
        return now

    def end(self, began: float) -> None:
        """It has dealt with it."""
        is_alone = self._thread == threading.get_ident()
        if is_alone:
            self._busy_since = None
            self._events += 1
        # Counted without a lock: one more or less does not matter.
        if self._clock() - began <= _QUICK_SECONDS:
            self._quick_calls = min(self._quick_calls + 1, _QUICK_CALLS)
            if self._quick_calls == _QUICK_CALLS and self._thread is None:
                self._start()
        elif is_alone and self._quick_calls > _SLOW_WEIGHT:
            self._quick_calls -= _SLOW_WEIGHT
        elif is_alone:
            # Too short for who watches, and too long for all others to wait for.
            self.stop()
        else:
            self._quick_calls = 0

    def wait_turn(self) -> None:
        """Returns once the calling thread is to wait for events, at once unless one is alone."""
        if self._thread is None or self._thread == threading.get_ident():
            return
        # One of those that wait watches. When it goes on the next one takes its place, and goes
        # on too, unless one thread is alone again by then.
        with self._is_watched:
            self._watch()

    def stop(self) -> None:
        """All threads are to wait for events."""
        with self._lock:
            self._thread, self._busy_since, self._quick_calls = None, None, 0
            self._is_over.set()

    def close(self) -> None:
        """The same, from now on."""
        self._is_closed = True
        self.stop()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._is_closed:
                self._is_over.clear()
                self._busy_since = None
                self._thread = threading.get_ident()

    def _watch(self) -> None:
        events, idle_ticks = self._events, 0
        while not self._is_over.wait(_TICK_SECONDS):
            since = self._busy_since
            if since is not None:
                idle_ticks = 0
                if self._clock() - since > _TICK_SECONDS:
                    self.stop()
            elif self._events != events:
                events, idle_ticks = self._events, 0
            else:
                idle_ticks += 1
                if idle_ticks >= _IDLE_TICKS:
                    self.stop()
