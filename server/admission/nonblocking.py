"""Marks the threads that must not block, such as the thread of the event loop.

Code that would wait for other requests, for example until a batch is full, first calls
`blocking_allowed`.
"""

import threading
from types import TracebackType


class WouldBlock(Exception):
    """A request would have to wait, or to run a slow model, but its thread must not block.

    The request had no effect yet, so the caller can pass it to a thread that may block.
    """


class _ThreadState(threading.local):
    blocking_allowed = True
    running_allowed = True


_thread_state = _ThreadState()


def blocking_allowed() -> bool:
    """Return whether the calling thread may wait for other requests."""
    return _thread_state.blocking_allowed


def running_allowed() -> bool:
    """Return whether the calling thread may run a model.

    The result is False only in the body of `with NonBlocking(may_run=False)`.
    """
    return _thread_state.running_allowed


def check_running_allowed() -> None:
    """Raise WouldBlock if the calling thread must not run a model.

    Raises:
      WouldBlock: the thread, such as the event loop's thread, must not run a model, because the
        run may take too long.
    """
    if not _thread_state.running_allowed:
        raise WouldBlock


class NonBlocking:
    """Marks the thread that runs the `with` body as a thread that must not block.

    The context manager cannot be nested.
    """

    __slots__ = ("_may_run",)

    def __init__(self, may_run: bool = True) -> None:
        self._may_run = may_run

    def __enter__(self) -> None:
        _thread_state.blocking_allowed = False
        _thread_state.running_allowed = self._may_run

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _thread_state.blocking_allowed = True
        _thread_state.running_allowed = True
