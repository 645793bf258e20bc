"""Lets the main thread wait until a signal or another thread asks the process to stop."""

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
    """Waits until a signal or another thread asks the process to stop.

    The signals are SIGTERM and SIGINT (Ctrl-C). Before `mark_serving`, there are no requests of
    clients to answer, so a signal exits the process immediately with status 0.
    """

    def __init__(self) -> None:
        # The reasons to stop. A signal handler puts reasons into this queue, and can interrupt a
        # thread that is using it. So the queue is a SimpleQueue, whose put is reentrant.
        self._reasons: SimpleQueue[str] = SimpleQueue()
        # The main thread waits for a byte from this socket pair, and not for an item in the queue.
        self._wakeup_reader, self._wakeup_writer = socket.socketpair()
        self._wakeup_writer.setblocking(False)
        self._is_serving = False
        self._is_stopping = False
        self._previous_handlers: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        """Handle SIGTERM and SIGINT. Call this in the main thread."""
        signal.set_wakeup_fd(self._wakeup_writer.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            self._previous_handlers[number] = signal.signal(number, self._handle)

    def uninstall(self) -> None:
        """Restore the previous signal handlers. Call this in the main thread."""
        signal.set_wakeup_fd(-1)
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)
        self._wakeup_reader.close()
        self._wakeup_writer.close()

    def fileno(self) -> int:
        """Return the file descriptor that is readable when `wait` returns at once."""
        return self._wakeup_reader.fileno()

    def mark_serving(self) -> None:
        """Record that requests of clients may be in flight from now on.

        After this call, the first signal makes `wait` return, so that the requests can be answered.
        """
        self._is_serving = True

    def wait(self) -> str:
        """Wait until the process is asked to stop, and return the reason, such as "SIGTERM"."""
        while self._reasons.empty():
            select.select([self._wakeup_reader], [], [])
            self._wakeup_reader.recv(1)
        return self._reasons.get()

    def request_stop(self, reason: str) -> None:
        """Make `wait` return with a reason. Any thread may call this method."""
        self._reasons.put(reason)
        self._wakeup_writer.send(b"\0")

    def stop(self, reason: str) -> None:
        """Make `wait` return with a reason, or exit the process if nothing was served."""
        if not self._is_serving:
            logger.info("%s before anything was served: exiting", reason)
            os._exit(0)
        self.request_stop(reason)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._is_stopping:
            os._exit(128 + number)
        self.stop(signal.Signals(number).name)
        self._is_stopping = True
