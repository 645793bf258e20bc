"""SIGTERM and Ctrl-C, as something to wait for."""

import logging
import os
import signal
from queue import SimpleQueue
from types import FrameType

logger = logging.getLogger(__name__)


class StopSignals:
    """Collects the wishes to stop that reach a process, by signal or from within.

    Before `wait` nothing is served, so a signal ends the process at once, with status 0; a second
    one ends it at once wherever it is.
    """

    def __init__(self) -> None:
        """Makes one that hears nothing until `install`."""
        # Of all that can wake a thread, this may be used in a handler that interrupts the waiter.
        self._reasons: SimpleQueue[str] = SimpleQueue()
        self._is_waiting = False
        self._is_stopping = False

    def install(self) -> None:
        """Takes over SIGTERM and SIGINT; to be called in the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def wait(self) -> str:
        """Blocks until it is time to stop; why it is."""
        self._is_waiting = True
        return self._reasons.get()

    def request(self, reason: str) -> None:
        """Asks for a stop from within the process, from any thread."""
        self._reasons.put(reason)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if not self._is_waiting:
            logger.info("%s before anything was served: exiting", name)
            os._exit(0)
        if self._is_stopping:
            os._exit(128 + number)
        self._is_stopping = True
        self._reasons.put(name)
