"""The cancellation of a request whose client no longer waits for the answer."""

import threading
from collections.abc import Callable
from typing import TypeAlias

from tpuserve.errors import Cancelled

Callback: TypeAlias = Callable[[], object]

MESSAGE = "the request was cancelled: its client no longer waits for the answer."
"""The text of the error of a cancelled request."""


class Cancellation:
    """Informs the code that handles a request that the request was cancelled. Thread-safe.

    A frontend creates one object per request, and calls `cancel` when the client closes the
    connection or cancels the call, and when the time limit of the request has passed. Code that
    waits on behalf of the request adds a callback, which ends the wait.
    """

    __slots__ = ("_callbacks", "_is_cancelled", "_lock")

    def __init__(self) -> None:
        """Create the cancellation of one request, which is not cancelled yet."""
        self._is_cancelled = False
        self._callbacks: list[Callback] = []
        self._lock = threading.Lock()

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._is_cancelled

    def cancel(self) -> None:
        """Cancel the request, and call the callbacks in the calling thread; later calls do nothing.

        A callback must not block and must not raise, because the calling thread may be the thread
        of the event loop.
        """
        with self._lock:
            self._is_cancelled = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def add_callback(self, callback: Callback) -> None:
        """Call a function when the request is cancelled, or at once if it was cancelled before."""
        with self._lock:
            if not self._is_cancelled:
                self._callbacks.append(callback)
                return
        callback()

    def remove_callback(self, callback: Callback) -> None:
        """Remove a function that `add_callback` has added; do nothing if there is no such function.

        Another thread that executes `cancel` at the same time may still call the function.
        """
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

    def raise_if_cancelled(self) -> None:
        """Raise Cancelled if the request was cancelled.

        Raises:
          Cancelled: the request was cancelled.
        """
        if self._is_cancelled:
            raise Cancelled(MESSAGE)
