"""Chooses where handlers run: in the event loop if they are quick, else in a thread pool."""

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tpuserve.errors import DeadlineExceeded

Result = TypeVar("Result")

# A request that takes less than this time is quick. A route whose requests are quick runs in the
# event loop, until its requests become slow: passing a request to a thread and back takes longer
# than a small model runs, and would reduce the requests/s of such a model to a quarter.
_QUICK_SECONDS = 0.001
# A new route runs in threads for this number of requests. The fastest of them decides whether the
# route is quick, because the latency of the others may include waiting for other threads.
_FIRST_RUNS = 8
# A route that has become too slow for the event loop runs in threads for a number of requests. This
# number doubles each time, up to _MAX_RUNS, so that a route on a busy machine does not switch back
# and forth. After _RUNS_UNTIL_RESET quick requests in the event loop, the number starts at
# _FIRST_RUNS again.
_MAX_RUNS = 4096
_RUNS_UNTIL_RESET = 4096
# A quick route becomes slow after four slow requests, or after one very slow request. Ten quick
# requests cancel one slow request.
_MAX_SLOW_RUNS, _CREDIT_PER_QUICK_RUN = 4.0, 0.1
_VERY_SLOW_SECONDS = 0.05
# In quick requests, the tracker calls `read_wait` only once in this number of requests, because the
# call reads a file and so takes time itself.
_RUNS_PER_READING = 64
_SCHEDULER_FILE = "/proc/thread-self/schedstat"
# Requests with more bytes than this always run in threads, because they take long to parse.
_MAX_INLINE_BYTES = 4096


def runqueue_wait_seconds() -> float:
    """Return how many seconds the calling thread has waited for a CPU so far; 0 if unknown.

    Source: https://docs.kernel.org/scheduler/sched-stats.html. Available on Linux alone.
    """
    try:
        with open(_SCHEDULER_FILE, "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


class LatencyTracker:
    """Tracks the latencies of a route to predict whether its next request is quick.

    On a busy machine even a quick request occasionally takes long, because its thread waits for a
    CPU. So the tracker subtracts this wait from the latency.

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
        """Create a tracker. The route counts as slow until its first requests have run.

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
        """Record the latency of one request, and update `is_quick`."""
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
        # Discard the last result of `read_wait`: it dates from before the requests ran in threads,
        # and the difference to the next result would include all waits since then.
        self._last_wait = None
        self._remaining_runs = self._num_runs_in_threads
        self._fastest = math.inf
        self._slow_runs = 0.0
        self._num_quick_runs = 0


class Workers:
    """Runs requests in a thread pool, but quick and small requests in the event loop.

    Attributes:
      may_run_inline: Whether quick and small requests run in the event loop.
    """

    def __init__(self, threads: int, timeout_ms: float | None, may_run_inline: bool = True) -> None:
        """Create the thread pool.

        Args:
          threads: The number of threads.
          timeout_ms: The milliseconds to wait for a result. None means no limit.
          may_run_inline: Whether quick and small requests run in the event loop. Must be False if
            requests wait for each other, as with batching.
        """
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="rest-worker")
        self._timeout_ms = timeout_ms
        self.may_run_inline = may_run_inline

    async def run(
        self,
        work: Callable[[], Result],
        size: int,
        tracker: LatencyTracker,
        on_dropped: Callable[[], object] = lambda: None,
    ) -> Result:
        """Run a function and return its result.

        Args:
          work: The function. May block.
          size: The size of the request in bytes. Large requests never run in the event loop.
          tracker: The latencies of the request's route.
          on_dropped: Called if `work` never runs, because it had not begun when the time was over.

        Raises:
          DeadlineExceeded: The work takes too long. Work that has begun continues, and its result
            is discarded.
        """
        if self.may_run_inline and size <= _MAX_INLINE_BYTES and tracker.is_quick:
            return _run_timed(tracker, work)
        submitted = self._pool.submit(_run_timed, tracker, work)
        submitted.add_done_callback(lambda future: future.cancelled() and on_dropped())
        # Wrap the pool's future in an asyncio future: when the timeout below cancels the asyncio
        # future, the pool's future is cancelled too, and work that has not begun never runs.
        future = asyncio.wrap_future(submitted)
        if self._timeout_ms is None:
            return await future
        try:
            return await asyncio.wait_for(future, self._timeout_ms / 1000)
        except asyncio.TimeoutError:
            raise DeadlineExceeded(
                f"the request was not answered within {self._timeout_ms:g} ms "
                f"(--rest_api_timeout_in_ms)"
            ) from None

    def close(self) -> None:
        """Stop the thread pool. Functions that have not begun to run never run."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _run_timed(tracker: LatencyTracker, work: Callable[[], Result]) -> Result:
    started = time.perf_counter()
    try:
        return work()
    finally:
        tracker.record(time.perf_counter() - started)
