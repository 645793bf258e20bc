"""The cancellation of a request for whose answer nobody waits any more."""

import threading
from collections.abc import Callable
from typing import TypeAlias

from tpuserve.errors import Cancelled, TpuserveError

Callback: TypeAlias = Callable[[], object]

_MESSAGE = "the request was cancelled: its client no longer waits for the answer."


class Cancellation:
    """Informs the code that handles a request that nobody waits for the answer. Thread-safe.

    A frontend calls `cancel` when the client closes the connection or cancels the call, and the
    clock of the deadlines when the time of the request is over.
    """

    __slots__ = ("_callbacks", "_error", "_lock")

    def __init__(self) -> None:
        self._error: TpuserveError | None = None
        self._callbacks: list[Callback] = []
        self._lock = threading.Lock()

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._error is not None

    @property
    def error(self) -> TpuserveError:
        """A new error that says why the request was cancelled."""
        reason = self._error
        return Cancelled(_MESSAGE) if reason is None else type(reason)(*reason.args)

    def cancel(self, error: TpuserveError | None = None) -> None:
        """Cancel the request, and call the callbacks in the calling thread; later calls do nothing.

        A callback must not block and must not raise, because the calling thread may be the thread
        of the event loop.

        Args:
          error: why the request is cancelled; None if its client has left.
        """
        with self._lock:
            if self._error is None:
                self._error = Cancelled(_MESSAGE) if error is None else error
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def add_callback(self, callback: Callback) -> None:
        """Call a function when the request is cancelled, or at once if it was cancelled before."""
        with self._lock:
            if self._error is None:
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
        """Raise the error for which the request was cancelled, such as Cancelled, if it was."""
        if self._error is not None:
            raise self.error
