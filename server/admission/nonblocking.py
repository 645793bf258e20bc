"""Marks threads that must not block, such as the event loop's.

Code that would wait for other requests, for example for a batch to fill, checks
`blocking_allowed` and raises `WouldBlock` instead of waiting.
"""

import threading
from types import TracebackType


class WouldBlock(Exception):
    """A request would have to wait for other requests, but its thread must not block.

    The request had no effect yet, so that another thread can run it.
    """


class _ThreadState(threading.local):
    blocking_allowed = True


_thread_state = _ThreadState()


def blocking_allowed() -> bool:
    """Return whether the calling thread may wait for other requests."""
    return _thread_state.blocking_allowed


class NonBlocking:
    """A context manager in whose body the calling thread must not block. Not reentrant."""

    __slots__ = ()

    def __enter__(self) -> None:
        _thread_state.blocking_allowed = False

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _thread_state.blocking_allowed = True
