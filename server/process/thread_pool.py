"""A thread pool that keeps working while the system cannot start new threads."""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

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
