"""Single-poller mode: while calls are short, only one thread polls the completion queue.

On CPython, threads that poll at the same time hand the global interpreter lock (GIL) to each other
at each call. That costs more than answering a small call. But when a call waits or computes for
long, the other threads must poll again, so that other calls are answered meanwhile.
"""

import threading
import time
from collections.abc import Callable

# Single-poller mode begins after this number of quick events in a row. An event is an entry of
# gRPC's completion queue; the docstring of the class says which events are quick.
_QUICK_CALLS = 64
_QUICK_SECONDS = 0.0003
# In single-poller mode, each quick event adds 1 to a count, and each slow event subtracts this
# number. The mode ends when the count reaches zero. So the mode continues after a few events that
# are slow only because of other work on the machine.
_SLOW_WEIGHT = 8
# The pause, in seconds, between two trials of the mode while calls are slow. The pause doubles
# after each trial, up to the maximum. When the count of quick events reaches _QUICK_CALLS, the
# pause gets its first value again.
_FIRST_TRIAL_PAUSE_SECONDS = 0.05
_MAX_TRIAL_PAUSE_SECONDS = 10.0
# The interval, in seconds, at which a blocked thread checks the only poller. If the poller has
# handled one event for longer than this time, the mode ends, and the other threads poll again.
_TICK_SECONDS = 0.002
# Single-poller mode ends after this number of intervals of `_TICK_SECONDS` without an event.
_IDLE_TICKS = 10


class _ThreadState(threading.local):
    has_run_call = False


class SinglePollerMode:
    """Decides whether all threads of an executor poll for events, or only one of them.

    The threads report each event that they handle. An event is slow if its handling runs a call and
    takes more than 0.3 ms. All other events are quick. After 64 quick events in a row, counted over
    all threads, single-poller mode begins: the thread that handled the last of these events becomes
    the only poller.

    Even a short call can make an event slow if several threads poll, and wait for each other to
    release the GIL. To find out whether this is the reason, a slow event also begins single-poller
    mode, as a trial. The trial ends after a few slow events. The pause before the next trial
    doubles each time.

    The mode ends when one event takes more than 2 ms, when more than one in nine events is slow for
    some time, or after 20 ms without an event.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Create the object. At first, single-poller mode is off, so that all threads poll.

        Args:
          clock: a function that returns the time in seconds since any fixed moment.
        """
        self._clock = clock
        self._thread = _ThreadState()
        self._lock = threading.Lock()
        self._poller: int | None = None
        self._quick_calls = 0
        self._busy_since: float | None = None
        self._next_trial = 0.0
        self._trial_pause = _FIRST_TRIAL_PAUSE_SECONDS
        self._events = 0
        self._is_closed = False
        self._watch_lock = threading.Lock()
        self._is_inactive = threading.Event()
        self._is_inactive.set()

    @property
    def is_active(self) -> bool:
        """Whether single-poller mode is on, so that only one thread polls."""
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

        The event counts as slow if `mark_call_run` was called for it and more than 0.3 ms have
        passed since `began`. Single-poller mode may begin or end because of this event.

        Args:
          began: the time that `begin_event` returned.
        """
        is_poller = self._poller == threading.get_ident()
        if is_poller:
            self._busy_since = None
            self._events += 1
        has_run_call, self._thread.has_run_call = self._thread.has_run_call, False
        # Count quick events without a lock: it does not matter if the count is wrong by 1.
        if not has_run_call or self._clock() - began <= _QUICK_SECONDS:
            self._quick_calls = min(self._quick_calls + 1, _QUICK_CALLS)
            if self._quick_calls == _QUICK_CALLS:
                self._trial_pause = _FIRST_TRIAL_PAUSE_SECONDS
                if self._poller is None:
                    self._activate()
        elif is_poller and self._quick_calls > _SLOW_WEIGHT:
            self._quick_calls -= _SLOW_WEIGHT
        elif is_poller:
            # End single-poller mode after too many slow events. Each of these events is too short
            # for `_watch` to notice (less than `_TICK_SECONDS`), but together they delay all other
            # calls.
            self.deactivate()
        else:
            self._quick_calls = 0
            if self._poller is None:
                self._try_mode()

    def mark_call_run(self) -> None:
        """Report that the current thread has run a call in the event that it handles.

        Only an event for which this method was called can count as slow. All other events count as
        quick: they take long only if other threads keep the GIL or the processors busy. The
        executor does not call the method for a call that was suspended, because such a call has
        not run its model in this event.
        """
        self._thread.has_run_call = True

    def wait_turn(self) -> None:
        """Block the current thread while another thread is the only poller.

        Each thread calls this method before it polls.
        """
        if self._poller is None or self._poller == threading.get_ident():
            return
        # Only the blocked thread that holds this lock checks the poller, so that several threads do
        # not do the same work. The other blocked threads wait for the lock. When single-poller mode
        # ends, they get the lock one after the other, and return.
        with self._watch_lock:
            self._watch()

    def deactivate(self) -> None:
        """End single-poller mode, so that all threads poll again.

        The mode may begin again later.
        """
        with self._lock:
            self._poller, self._busy_since, self._quick_calls = None, None, 0
            self._is_inactive.set()

    def close(self) -> None:
        """End single-poller mode, and never begin it again."""
        self._is_closed = True
        self.deactivate()

    def _try_mode(self) -> None:
        """Begin a trial of single-poller mode, if the pause after the last trial is over."""
        now = self._clock()
        if now >= self._next_trial:
            self._next_trial = now + self._trial_pause
            self._trial_pause = min(2 * self._trial_pause, _MAX_TRIAL_PAUSE_SECONDS)
            # Set the count of quick events so low that two slow events in a row end the trial.
            self._quick_calls = 2 * _SLOW_WEIGHT
            self._activate()

    def _activate(self) -> None:
        with self._lock:
            if self._poller is None and not self._is_closed:
                self._is_inactive.clear()
                self._busy_since = None
                self._poller = threading.get_ident()

    def _watch(self) -> None:
        """Block until single-poller mode has ended; end the mode if the poller is slow or idle."""
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
