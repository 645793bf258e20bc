"""Threads that may wait for nothing: one that serves everybody would keep them all waiting."""

import threading
from types import TracebackType


class WouldBlock(Exception):
    """A request has to wait for others, in a thread that may not; nothing has come of it yet."""


class _Thread(threading.local):
    blocking_allowed = True


_thread = _Thread()


def blocking_allowed() -> bool:
    """Whether the calling thread may wait for what others do."""
    return _thread.blocking_allowed


class NonBlocking:
    """A block in which the calling thread may not; WouldWait ends it where it would have to."""

    __slots__ = ()

    def __enter__(self) -> None:
        _thread.blocking_allowed = False

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _thread.blocking_allowed = True
