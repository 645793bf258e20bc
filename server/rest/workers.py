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
# Once it was too slow for the event loop it is not tried there for a good while.
_PENALTY_RUNS = 500
# So many slow runs are too many, each of them made up for by ten quick ones: on a busy machine a
# process has to wait now and then, through no fault of the model's. A run of the second length
# is too slow by itself.
_MOST_SLOW, _MADE_UP = 4.0, 0.1
_FAR_TOO_SLOW_SECONDS = 0.05
# Larger ones take their time to parse, whatever the model.
_MAX_INLINE_BYTES = 4096


class Pace:
    """How quick the requests to one path have been.

    Attributes:
      is_quick: whether the next one may be expected to be so.
    """

    __slots__ = ("_best", "_left", "_slow", "is_quick")

    def __init__(self) -> None:
        """Begins with what is not known to be quick."""
        self.is_quick = False
        self._best = math.inf
        self._left = _FIRST_RUNS
        self._slow = 0.0

    def took(self, seconds: float) -> None:
        """Takes in how long one has taken."""
        if self.is_quick:
            if seconds < _QUICK_SECONDS:
                self._slow = max(0.0, self._slow - _MADE_UP)
                return
            self._slow += 1 if seconds < _FAR_TOO_SLOW_SECONDS else _MOST_SLOW
            if self._slow >= _MOST_SLOW:
                self._look_for(_PENALTY_RUNS)
            return
        self._best = min(self._best, seconds)
        self._left -= 1
        if self._left > 0:
            return
        self._slow = 0.0
        if self._best < _QUICK_SECONDS:
            self.is_quick = True
        else:
            self._look_for(_FIRST_RUNS)

    def _look_for(self, runs: int) -> None:
        self.is_quick = False
        self._best = math.inf
        self._left = runs


class Workers:
    """The threads of a face."""

    def __init__(self, threads: int, timeout_ms: float | None, may_run_inline: bool = True) -> None:
        """Takes how many threads there are.

        Args:
          timeout_ms: after which an answer is not waited for any more.
          may_run_inline: False where a request may wait for others, as batched ones do.
        """
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="rest-worker")
        self._timeout_ms = timeout_ms
        self._may_run_inline = may_run_inline

    def is_inline(self, size: int, pace: Pace) -> bool:
        """Whether `run` would not use a thread, so that `timed` does as well, and sooner."""
        return self._may_run_inline and size <= _MAX_INLINE_BYTES and pace.is_quick

    async def run(self, work: Callable[[], Result], size: int, pace: Pace) -> Result:
        """What some work returns.

        Args:
          size: of the request, in bytes.

        Raises:
          DeadlineExceeded: it takes longer than it may; then it goes on, unheard.
        """
        if self.is_inline(size, pace):
            return timed(pace, work)
        future = asyncio.get_running_loop().run_in_executor(self._pool, timed, pace, work)
        if self._timeout_ms is None:
            return await future
        done, _ = await asyncio.wait([future], timeout=self._timeout_ms / 1000)
        if not done:
            future.add_done_callback(lambda late: late.cancelled() or late.exception())
            raise DeadlineExceeded(
                f"the request was not answered within {self._timeout_ms:g} ms "
                f"(--rest_api_timeout_in_ms)"
            )
        return future.result()

    def close(self) -> None:
        """Takes no more work."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def timed(pace: Pace, work: Callable[..., Result], *args: object) -> Result:
    """What some work returns, done in the calling thread; the pace is told how long it takes."""
    started = time.perf_counter()
    try:
        return work(*args)
    finally:
        pace.took(time.perf_counter() - started)
