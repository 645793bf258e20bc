"""Single-poller mode: while calls are short, one thread polls the completion queue alone.

On CPython, threads that poll together hand the global interpreter lock (GIL) to each other with
each call, which costs more than a small call does. When a call waits or computes for long, the
other threads must poll again.
"""

import threading
import time
from collections.abc import Callable

# Single-poller mode begins after this number of quick calls in a row.
_QUICK_CALLS = 64
_QUICK_SECONDS = 0.0003
# In single-poller mode, one slow call subtracts this number from the count of quick calls in a row,
# and the mode ends when the count reaches zero. So the mode goes on after a few calls that are slow
# only because of other work on the machine.
_SLOW_WEIGHT = 8
# The interval at which a waiting thread checks the only poller. When the poller has handled one
# event for longer than this time, the other threads poll again.
_TICK_SECONDS = 0.002
# Single-poller mode ends after this number of intervals (`_TICK_SECONDS`) without an event.
_IDLE_TICKS = 10


class _ThreadState(threading.local):
    has_run_call = False


class SinglePollerMode:
    """Decides whether all threads poll for events, or only one of them.

    The threads report each event that they handle. An event is slow if it runs a call and takes
    more than 0.3 ms, else quick. After 64 quick events in a row, counted over all threads,
    single-poller mode begins: the thread that handled the last of the events becomes the only
    poller. The mode ends when more than one of nine events is slow for some time, when an event
    takes more than 2 ms, or after 20 ms without an event.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Create the object with single-poller mode off: all threads poll.

        Args:
          clock: a function that returns the time in seconds; only differences matter.
        """
        self._clock = clock
        self._thread = _ThreadState()
        self._lock = threading.Lock()
        self._poller: int | None = None
        self._quick_calls = 0
        self._busy_since: float | None = None
        self._events = 0
        self._is_closed = False
        self._watch_lock = threading.Lock()
        self._is_inactive = threading.Event()
        self._is_inactive.set()

    @property
    def is_active(self) -> bool:
        """Whether only one thread polls."""
        return self._poller is not None

    def begin_event(self) -> float:
        """Report that the current thread begins to handle an event.

        Returns:
          The current time in seconds, to pass to `end_event`.
        """
        now = self._clock()
        if self._poller == threading.get_ident():
            self._busy_since = now
        return now

    def end_event(self, began: float) -> None:
        """Report that the current thread has handled an event.

        The time since `began` tells whether the event was quick. Depending on the last events,
        single-poller mode begins, continues or ends.

        Args:
          began: the time that `begin_event` returned.
        """
        is_poller = self._poller == threading.get_ident()
        if is_poller:
            self._busy_since = None
            self._events += 1
        has_run_call, self._thread.has_run_call = self._thread.has_run_call, False
        # Count quick calls without a lock: an error of 1 in the count does not matter.
        if not has_run_call or self._clock() - began <= _QUICK_SECONDS:
            self._quick_calls = min(self._quick_calls + 1, _QUICK_CALLS)
            if self._quick_calls == _QUICK_CALLS and self._poller is None:
                self._activate()
        elif is_poller and self._quick_calls > _SLOW_WEIGHT:
            self._quick_calls -= _SLOW_WEIGHT
        elif is_poller:
            # End single-poller mode after too many slow calls. Each is too short for `_watch` to
            # notice the call, but together they delay all other calls.
            self.deactivate()
        else:
            self._quick_calls = 0

    def mark_call_run(self) -> None:
        """Report that the current thread has run a call in the event that it handles.

        Only an event in which a call was run can count as slow. Any other event takes long only if
        other threads keep the GIL or the processors busy, and so counts as quick. The same holds
        for the event of a call that was suspended before it waited or ran a model.
        """
        self._thread.has_run_call = True

    def wait_turn(self) -> None:
        """Block the current thread as long as another thread is the only poller."""
        if self._poller is None or self._poller == threading.get_ident():
            return
        # Let only one of the waiting threads, the one that gets the lock, check on the poller; the
        # others wait for the lock. When single-poller mode ends, each waiting thread gets the lock
        # in turn and returns, unless the mode has begun again.
        with self._watch_lock:
            self._watch()

    def deactivate(self) -> None:
        """End single-poller mode: let all threads poll again."""
        with self._lock:
            self._poller, self._busy_since, self._quick_calls = None, None, 0
            self._is_inactive.set()

    def close(self) -> None:
        """End single-poller mode for good: all threads poll from now on."""
        self._is_closed = True
        self.deactivate()

    def _activate(self) -> None:
        with self._lock:
            if self._poller is None and not self._is_closed:
                self._is_inactive.clear()
                self._busy_since = None
                self._poller = threading.get_ident()

    def _watch(self) -> None:
        """Block while single-poller mode lasts, and end it if the poller is slow or idle."""
        events, idle_ticks = self._events, 0
        while not self._is_inactive.wait(_TICK_SECONDS):
            since = self._busy_since
            if since is not None:
                idle_ticks = 0
                if self._clock() - since > _TICK_SECONDS:
                    self.deactivate()
            elif self._events != events:
                events, idle_ticks = self._events, 0
            else:
                idle_ticks += 1
                if idle_ticks >= _IDLE_TICKS:
                    self.deactivate()
