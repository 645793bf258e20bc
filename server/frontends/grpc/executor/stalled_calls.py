"""Cancels calls whose first message does not arrive in time."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

MESSAGE_TIMEOUT_SECONDS = 60.0
"""The time in which the first message of a call must arrive."""

_CHECK_INTERVAL_SECONDS = 1

logger = logging.getLogger(__name__)


class CancellableCall(Protocol):
    """A call that has begun: a ServicerContext, or grpcio's private object for a call."""

    def cancel(self) -> object:
        """Cancel the call."""


class StalledCallReaper:
    """Tracks the calls that wait for their first message, and cancels those that wait too long."""

    def __init__(self, timeout_seconds: float, clock: Callable[[], float]) -> None:
        """Create a reaper that tracks no call yet.

        Args:
          timeout_seconds: the time in which the first message of a call must arrive.
          clock: a function that returns the time in seconds; only differences matter.
        """
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._waiting_since: dict[CancellableCall, float] = {}
        self._is_closed = threading.Event()

    @property
    def has_waiting_calls(self) -> bool:
        """Whether any call waits for its first message."""
        return bool(self._waiting_since)

    def track(self, call: CancellableCall) -> None:
        """Add a call that waits for its first message, and start its timeout."""
        self._waiting_since[call] = self._clock()

    def untrack(self, call: CancellableCall) -> None:
        """Stop tracking a call whose first message has arrived, or that has ended without one."""
        del self._waiting_since[call]

    @contextmanager
    def tracking(self, call: CancellableCall) -> Iterator[None]:
        """Track a call while the body of a `with` statement waits for the call's first message."""
        self.track(call)
        try:
            yield
        finally:
            self.untrack(call)

    def calls_waiting_longer_than(self, seconds: float) -> list[CancellableCall]:
        """List the calls that have waited for their first message for more than the given time."""
        limit = self._clock() - seconds
        # Iterate over a copy, because other threads change the dict of waiting calls meanwhile.
        # dict.copy is atomic.
        return [call for call, since in self._waiting_since.copy().items() if since < limit]

    def cancel_stalled(self) -> None:
        """Cancel the calls whose first message has not arrived within `timeout_seconds`."""
        for call in self.calls_waiting_longer_than(self._timeout_seconds):
            logger.warning("a call is cancelled: its message has not arrived in time")
            call.cancel()

    def start(self, check: Callable[[], object] | None = None) -> None:
        """Start a thread that calls a function every second until `close`.

        Args:
          check: the function to call; None to call `cancel_stalled`.
        """

        def run() -> None:
            while not self._is_closed.wait(_CHECK_INTERVAL_SECONDS):
                (check or self.cancel_stalled)()

        threading.Thread(target=run, name="grpc-watch", daemon=True).start()

    def close(self) -> None:
        """End the thread that `start` has started."""
        self._is_closed.set()
