"""Predicts from past latencies whether the next request is quick enough for the event loop."""

import math
from collections.abc import Callable

# A request that takes less than this time is quick. A route is one method (such as predict) of one
# model. While the requests of a route are quick, the server runs them in the event loop and not in
# a thread of a pool: passing a request to a thread and back takes longer than a small model runs,
# and would reduce the requests/s of a small model to a quarter.
_QUICK_SECONDS = 0.001
# The first requests of a route (one method of one model) run in threads of a pool, and not in the
# event loop. This is the number of these requests. The route is quick if the fastest of them is
# quick: the latency of the slower requests may include waiting for other threads.
_FIRST_RUNS = 8
# When the requests of a route (one method of one model) become too slow for the event loop, the
# next n requests of the route run in threads of a pool. n begins at _FIRST_RUNS, and _MAX_RUNS is
# its maximum. Each such change from the event loop to threads doubles n, so that a route on a busy
# machine seldom changes. But if at least _RUNS_UNTIL_RESET quick requests ran in the event loop
# before the change, n is set to _FIRST_RUNS instead.
_MAX_RUNS = 4096
_RUNS_UNTIL_RESET = 4096
# The tracker counts slow requests, which take at least _QUICK_SECONDS. When the count reaches
# _MAX_SLOW_RUNS (four), the next requests run in threads and not in the event loop. A request that
# takes at least _VERY_SLOW_SECONDS counts as four. Each quick request reduces the count by
# _CREDIT_PER_QUICK_RUN (0.1), because a few slow requests among many quick requests do not matter.
_MAX_SLOW_RUNS, _CREDIT_PER_QUICK_RUN = 4.0, 0.1
_VERY_SLOW_SECONDS = 0.05
# While requests are quick, the tracker reads the time that the thread has waited for a CPU for only
# one of _RUNS_PER_READING requests. Each reading opens a file in /proc, which itself takes time.
_RUNS_PER_READING = 64
_SCHEDULER_FILE = "/proc/thread-self/schedstat"


def runqueue_wait_seconds() -> float:
    """Return the seconds that the calling thread has waited for a CPU so far; 0 if unknown.

    The value comes from Linux; on other systems it is unknown. Source:
    https://docs.kernel.org/scheduler/sched-stats.html.
    """
    try:
        with open(_SCHEDULER_FILE, "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


class LatencyTracker:
    """Tracks the latencies of a route, which is one method (such as predict) of one model.

    The tracker predicts from these latencies whether the next request is quick. The server runs
    quick requests in the event loop and all others in threads.

    On a busy machine even a quick request occasionally takes long, because its thread waits for a
    CPU. So the tracker subtracts the time of this wait from the latency.

    Attributes:
      is_quick: Whether the next request is expected to be quick.
    """

    __slots__ = (
        "_fastest",
        "_last_wait",
        "_num_quick_runs",
        "_num_runs_in_threads",
        "_read_wait",
        "_remaining_runs",
        "_slow_runs",
        "is_quick",
    )

    def __init__(self, read_wait: Callable[[], float] = runqueue_wait_seconds) -> None:
        """Create a tracker, whose `is_quick` is False until the first requests have run.

        Args:
          read_wait: Returns the seconds that the calling thread has waited for a CPU so far.
        """
        self._read_wait = read_wait
        self._last_wait: float | None = None
        self.is_quick = False
        self._num_runs_in_threads = self._remaining_runs = _FIRST_RUNS
        self._fastest = math.inf
        self._slow_runs = 0.0
        self._num_quick_runs = 0

    def record(self, seconds: float) -> None:
        """Record the latency of one request in seconds, and update `is_quick`."""
        if not self.is_quick:
            self._record_in_thread(seconds)
        elif seconds < _QUICK_SECONDS:
            if not self._num_quick_runs % _RUNS_PER_READING:
                self._last_wait = self._read_wait()
            self._num_quick_runs += 1
            if self._slow_runs > 0:
                self._slow_runs -= _CREDIT_PER_QUICK_RUN
        elif (seconds := seconds - self._wait_since_last_reading()) >= _QUICK_SECONDS:
            self._slow_runs += 1 if seconds < _VERY_SLOW_SECONDS else _MAX_SLOW_RUNS
            if self._slow_runs >= _MAX_SLOW_RUNS:
                self._mark_slow()

    def _mark_slow(self) -> None:
        if self._num_quick_runs >= _RUNS_UNTIL_RESET:
            self._num_runs_in_threads = _FIRST_RUNS
        else:
            self._num_runs_in_threads = min(2 * self._num_runs_in_threads, _MAX_RUNS)
        self._remaining_runs = self._num_runs_in_threads
        self.is_quick = False

    def _wait_since_last_reading(self) -> float:
        previous, self._last_wait = self._last_wait, self._read_wait()
        return 0.0 if previous is None else self._last_wait - previous

    def _record_in_thread(self, seconds: float) -> None:
        self._fastest = min(self._fastest, seconds)
        self._remaining_runs -= 1
        if self._remaining_runs > 0:
            return
        self.is_quick = self._fastest < _QUICK_SECONDS
        # Discard `_last_wait`, the time for which the event loop's thread had waited for a CPU. It
        # was read before the last requests, which ran in other threads. If it were kept, the wait
        # since then would be subtracted from the latency of the next slow request in the event
        # loop.
        self._last_wait = None
        self._remaining_runs = self._num_runs_in_threads
        self._fastest = math.inf
        self._slow_runs = 0.0
        self._num_quick_runs = 0
