"""SIGTERM and Ctrl-C, as something to wait for."""

import logging
import os
import select
import signal
import socket
from queue import SimpleQueue
from types import FrameType
from typing import Any

logger = logging.getLogger(__name__)


class StopSignals:
    """Collects the wishes to stop that reach a process, by signal or from within.

    Before `serving` nothing can be lost, so a signal ends the process as soon as Python's code
    runs again, with status 0. A second one ends it wherever it is.
    """

    def __init__(self) -> None:
        """Makes one that hears nothing until `install`."""
        # Of all that can carry a reason, this may be used in a handler that interrupts a reader.
        self._reasons: SimpleQueue[str] = SimpleQueue()
        # The kernel may hand a signal to any thread, and Python's handler runs in the main one
        # alone, once that is awake. So the main thread waits for a byte: Python writes one
        # whichever thread is interrupted.
        self._wakes, self._wake = socket.socketpair()
        self._wake.setblocking(False)
        self._is_serving = False
        self._is_stopping = False
        self._before: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        """Takes over SIGTERM and SIGINT; to be called in the main thread."""
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._handle)

    def uninstall(self) -> None:
        """Gives them back to who had them before; to be called in the main thread."""
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._wakes.close()
        self._wake.close()

    def serving(self) -> None:
        """From here on requests may be in flight: a signal is kept for `wait`."""
        self._is_serving = True

    def wait(self) -> str:
        """Blocks until it is time to stop; why it is."""
        while self._reasons.empty():
            select.select([self._wakes], [], [])
            self._wakes.recv(1)
        return self._reasons.get()

    def request(self, reason: str) -> None:
        """Asks for a stop from within the process, from any thread."""
        self._reasons.put(reason)
        self._wake.send(b"\0")

    def _handle(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if not self._is_serving:
            logger.info("%s before anything was served: exiting", name)
            os._exit(0)
        if self._is_stopping:
            os._exit(128 + number)
        self._is_stopping = True
        self._reasons.put(name)
