"""A thread pool that keeps working while the system cannot start new threads."""

import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")
# The nice value of the executor's threads. A thread with this value gets a tenth of the processor
# time of a request's thread that runs on the same processor.
_NICE = 10
# The largest share of the time of all processors that background work may use.
_PROCESSOR_SHARE = 1 / 8
# The longest pause after a function, in seconds. Without this limit, a function that takes seconds
# would be followed by a pause of many seconds.
_LONGEST_PAUSE_SECONDS = 0.1
_PROCESSORS = os.cpu_count() or 1


class ThrottledExecutor:
    """Runs functions in threads of low priority, with pauses between them.

    Before `enable` is called, functions run in the calling thread without pauses.

    The functions should spend their time in C++ code that releases the GIL.

    Args:
      sleep: pauses the calling thread for a number of seconds.
    """

    def __init__(
        self,
        threads: int,
        processors: int = _PROCESSORS,
        *,
        clock: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._threads = ThreadPoolExecutor(threads, "background", initializer=_lower_priority)
        self._is_enabled = False
        self._clock, self._sleep = clock, sleep
        # The length of the pause after a function, relative to its processor time.
        self._pause_per_second = max(0.0, 1 / (_PROCESSOR_SHARE * processors) - 1)

    def enable(self) -> None:
        """Begin to throttle the work. Call this when the server begins to answer requests."""
        self._is_enabled = True

    def __call__(self, work: Callable[[], Result]) -> Result:
        """Run a function, wait for its end, and return its result or raise its exception."""
        if not self._is_enabled:
            return work()
        result, work_seconds = self._threads.submit(self._run_timed, work).result()
        self._sleep(min(work_seconds * self._pause_per_second, _LONGEST_PAUSE_SECONDS))
        return result

    def _run_timed(self, work: Callable[[], Result]) -> tuple[Result, float]:
        start = self._clock()
        return work(), self._clock() - start


def _lower_priority() -> None:
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, max(_NICE, os.getpriority(os.PRIO_PROCESS, 0)))


logger = logging.getLogger(__name__)

# The text of the RuntimeError of `threading.Thread.start`. The RuntimeError of a pool that has been
# shut down has another text.
_NO_NEW_THREAD = "can't start new thread"


class ThreadPool(ThreadPoolExecutor):
    """A ThreadPoolExecutor that has at least one thread from the beginning.

    Containers limit the number of threads (`pids.max` of Linux's control groups). At this limit,
    `ThreadPoolExecutor.submit` raises RuntimeError, although it has queued the function already.
    """

    def __init__(self, max_threads: int, name: str) -> None:
        super().__init__(max_threads, name)
        self.submit(_do_nothing)

    def run_soon(self, function: Callable[..., object], *args: object) -> None:
        """Run a function in a thread of the pool.

        If all threads are busy and the system cannot start another thread, the function runs when
        one of the threads becomes free.
        """
        try:
            self.submit(function, *args)
        except RuntimeError as error:
            if _NO_NEW_THREAD not in str(error):
                raise
            logger.warning(
                "%s: a function waits for one of the threads that run. Raise the limit of threads, "
                "for example pids.max of the container.",
                error,
            )

    def start(self, function: Callable[[], Result]) -> Future[Result]:
        """Run a function in a thread of the pool, as `run_soon` does, and return its future."""
        future = Future[Result]()
        self.run_soon(_run_into, future, function)
        return future


def _run_into(future: Future[Result], function: Callable[[], Result]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(function())
    except BaseException as error:
        future.set_exception(error)


def _do_nothing() -> None:
    """Let the pool start its first thread."""
