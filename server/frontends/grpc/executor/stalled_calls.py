"""Calls whose messages are on their way, and the end of those that never come."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

# A message that has not arrived by then is given up, and its call with it.
MESSAGE_SECONDS = 60.0

logger = logging.getLogger(__name__)


class Call(Protocol):
    """A call that has begun."""

    def cancel(self) -> object:
        """Ends it."""


class StalledCallReaper:
    """The calls that wait for their message; those that do so for too long are cancelled."""

    def __init__(self, message_seconds: float, clock: Callable[[], float]) -> None:
        """Takes how long a message may take to arrive.

        Args:
          clock: in seconds; only differences count.
        """
        self._message_seconds = message_seconds
        self._clock = clock
        self._since: dict[Call, float] = {}
        self._is_closed = threading.Event()

    def __bool__(self) -> bool:
        return bool(self._since)

    def begin(self, call: Call) -> None:
        """From here on its message is waited for."""
        self._since[call] = self._clock()

    def end(self, call: Call) -> None:
        """Its message has come, or it has ended without one."""
        del self._since[call]

    @contextmanager
    def of(self, call: Call) -> Iterator[None]:
        """A block that waits for a message."""
        self.begin(call)
        try:
            yield
        finally:
            self.end(call)

    def longer_than(self, seconds: float) -> list[Call]:
        """The calls that have waited for so long."""
        begun = self._clock() - seconds
        # A copy first, since others come and go meanwhile; it is made in one step.
        return [call for call, since in self._since.copy().items() if since < begun]

    def cancel_stalled(self) -> None:
        """Cancels the calls that have waited for too long."""
        for call in self.longer_than(self._message_seconds):
            logger.warning("a call is cancelled: its message has not arrived in time")
            call.cancel()

    def watch(self, look: Callable[[], object] | None = None) -> None:
        """Has a thread of its own look for them every second, until `close`."""

        def run() -> None:
            while not self._is_closed.wait(1):
                (look or self.cancel_stalled)()

        threading.Thread(target=run, name="grpc-watch", daemon=True).start()

    def close(self) -> None:
        """Ends the watching."""
        self._is_closed.set()
