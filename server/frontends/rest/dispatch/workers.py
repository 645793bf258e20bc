"""Where models run: in the event loop if they are quick, else in threads."""

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tpuserve.errors import DeadlineExceeded

Result = TypeVar("Result")

# To hand a request to a thread and back costs more than a small model does, and divides what a
# server of one can answer by four. So a path whose requests are quick is answered in the event
# loop, until they are not quick any more.
_QUICK_SECONDS = 0.001
# In a thread a run may wait for others, so that the best of some tells how quick it can be.
_FIRST_RUNS = 8
# Once it was too slow for the event loop it is not tried there for twice as many runs as the time
# before, up to a bound: on a busy machine it may well be quick again at once. That is forgotten
# after so many quick ones.
_MOST_RUNS = 4096
_FORGIVEN_RUNS = 4096
# So many slow runs are too many, each of them made up for by ten quick ones. A run of the second
# length is too slow by itself.
_MOST_SLOW, _MADE_UP = 4.0, 0.1
_FAR_TOO_SLOW_SECONDS = 0.05
# How many quick runs pass from one look at the time that the thread has waited to the next.
_RUNS_A_LOOK = 64
_SCHEDULER_FILE = "/proc/thread-self/schedstat"
# Larger ones take their time to parse, whatever the model.
_MAX_INLINE_BYTES = 4096


def runqueue_wait_seconds() -> float:
    """The seconds that the calling thread was ready to run and did not; 0 but on Linux."""
    try:
        with open(_SCHEDULER_FILE, "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


class LatencyTracker:
    """How quick the requests to one path have been.

    On a busy machine a run takes long now and then through no fault of the model's: what the
    thread has waited for a processor is taken off.

    Attributes:
      is_quick: whether the next one may be expected to be so.
    """

    __slots__ = (
        "_best",
        "_left",
        "_quick_runs",
        "_read_waited",
        "_runs",
        "_slow",
        "_waited",
        "is_quick",
    )

    def __init__(self, read_waited: Callable[[], float] = runqueue_wait_seconds) -> None:
        """Begins with what is not known to be quick.

        Args:
          read_waited: tells the seconds that the calling thread has waited so far.
        """
        self._read_waited = read_waited
        self._waited: float | None = None
        self.is_quick = False
        self._runs = self._left = _FIRST_RUNS
        self._best = math.inf
        self._slow = 0.0
        self._quick_runs = 0

    def record(self, seconds: float) -> None:
        """Takes in how long one has taken."""
        if not self.is_quick:
            self._try(seconds)
        elif seconds < _QUICK_SECONDS:
            if not self._quick_runs % _RUNS_A_LOOK:
                self._waited = self._read_waited()
            self._quick_runs += 1
            if self._slow > 0:
                self._slow -= _MADE_UP
        elif (seconds := seconds - self._waited_since()) >= _QUICK_SECONDS:
            self._slow += 1 if seconds < _FAR_TOO_SLOW_SECONDS else _MOST_SLOW
            if self._slow >= _MOST_SLOW:
                is_forgiven = self._quick_runs >= _FORGIVEN_RUNS
                self._runs = _FIRST_RUNS if is_forgiven else min(2 * self._runs, _MOST_RUNS)
                self._left = self._runs
                self.is_quick = False

    def _waited_since(self) -> float:
        before, self._waited = self._waited, self._read_waited()
        return 0.0 if before is None else self._waited - before

    def _try(self, seconds: float) -> None:
        self._best = min(self._best, seconds)
        self._left -= 1
        if self._left > 0:
            return
        self.is_quick = self._best < _QUICK_SECONDS
        # Quick ones run in another thread than this.
        self._waited = None
        self._left = self._runs
        self._best = math.inf
        self._slow = 0.0
        self._quick_runs = 0


class Workers:
    """The threads of a face.

    Attributes:
      may_run_inline: whether what is quick and small needs none.
    """

    def __init__(self, threads: int, timeout_ms: float | None, may_run_inline: bool = True) -> None:
        """Takes how many threads there are.

        Args:
          timeout_ms: after which an answer is not waited for any more.
          may_run_inline: False where a request may wait for others, as batched ones do.
        """
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="rest-worker")
        self._timeout_ms = timeout_ms
        self.may_run_inline = may_run_inline

    async def run(
        self,
        work: Callable[[], Result],
        size: int,
        pace: LatencyTracker,
        dropped: Callable[[], object] = lambda: None,
    ) -> Result:
        """What some work returns.

        Args:
          size: of the request, in bytes.
          dropped: called if the work has not begun when nobody waits for it any more; then it
            never begins.

        Raises:
          DeadlineExceeded: it takes longer than it may; if it has begun it goes on, unheard.
        """
        if self.may_run_inline and size <= _MAX_INLINE_BYTES and pace.is_quick:
            return _timed(pace, work)
        submitted = self._pool.submit(_timed, pace, work)
        submitted.add_done_callback(lambda it: it.cancelled() and dropped())
        # Who gives up waiting cancels what has not begun.
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
        """Takes no more work."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _timed(pace: LatencyTracker, work: Callable[[], Result]) -> Result:
    """What some work returns, done in the calling thread; the pace is told how long it takes."""
    started = time.perf_counter()
    try:
        return work()
    finally:
        pace.record(time.perf_counter() - started)
