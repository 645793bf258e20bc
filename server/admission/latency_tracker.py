"""Decides from past latencies whether the next request of a route runs in the event loop.

The event loop of gRPC is the thread that polls for its events.
"""

import math

MAX_INLINE_BYTES = 4096
"""The event loop runs a model only for requests of at most this size: larger ones take longer."""

# A request that takes less than this many seconds is quick: to hand it to a thread and back would
# take longer than to run it.
_QUICK_SECONDS = 0.001
# A route leaves the event loop after this number of slow requests in a row, or after one request
# that takes at least _VERY_SLOW_SECONDS.
_SLOW_RUNS, _VERY_SLOW_SECONDS = 4, 0.05
# The requests that run in threads before the route is judged: its first ones, and those after it
# has left the event loop.
_FIRST_RUNS, _RUNS_AFTER_SLOW = 8, 512


class LatencyTracker:
    """Tracks the latencies of a route, which is one method (such as predict) of one model.

    Attributes:
      is_quick: Whether the next request is expected to be quick. The event loop runs it then, and
        a thread otherwise.
    """

    __slots__ = ("_fastest", "_remaining_runs", "_slow_runs", "is_quick")

    def __init__(self) -> None:
        self.is_quick = False
        self._slow_runs = 0
        self._remaining_runs = _FIRST_RUNS
        self._fastest = math.inf

    def record(self, seconds: float, *, is_ok: bool = True) -> None:
        """Record the latency of one request in seconds, and update `is_quick`.

        A request that has failed soon tells nothing about those that run the model.
        """
        if not is_ok and seconds < _QUICK_SECONDS:
            return
        if self.is_quick:
            self._slow_runs = 0 if seconds < _QUICK_SECONDS else self._slow_runs + 1
            if self._slow_runs >= _SLOW_RUNS or seconds >= _VERY_SLOW_SECONDS:
                self.is_quick = False
                self._remaining_runs = _RUNS_AFTER_SLOW
            return
        # The slower requests may have waited for other threads, so the fastest one decides.
        self._fastest = min(self._fastest, seconds)
        self._remaining_runs -= 1
        if self._remaining_runs <= 0:
            self.is_quick = self._fastest < _QUICK_SECONDS
            self._slow_runs, self._remaining_runs, self._fastest = 0, _FIRST_RUNS, math.inf
