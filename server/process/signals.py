"""Lets the main thread wait until SIGTERM, Ctrl-C or another thread stops the process."""

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
    """Collects requests to stop the process, from signals and from other threads.

    Before `mark_serving`, no client's request can be lost by a stop: the first signal exits the
    process with status 0 as soon as Python code runs again. After `mark_serving`, the first signal
    ends `wait`, and a second signal exits the process at once.
    """

    def __init__(self) -> None:
        """Create an object that handles no signals until `install`."""
        # A SimpleQueue, because its put is reentrant: a signal handler calls put, and may interrupt
        # a thread that uses the queue.
        self._reasons: SimpleQueue[str] = SimpleQueue()
        # The main thread waits for a byte from this socket pair, and not for the queue. Python runs
        # a signal handler only once the main thread runs Python code, but the kernel may deliver
        # the signal to another thread, which does not wake the main thread up. In any thread,
        # Python writes a byte to the wake-up file descriptor.
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

    def mark_serving(self) -> None:
        """Declare that requests of clients may be in flight.

        From now on, a first signal makes `wait` return, so that the requests can be answered.
        Before, a first signal ends the process.
        """
        self._is_serving = True

    def wait(self) -> str:
        """Block until the process is asked to stop, and return the reason."""
        while self._reasons.empty():
            select.select([self._wakeup_reader], [], [])
            self._wakeup_reader.recv(1)
        return self._reasons.get()

    def request_stop(self, reason: str) -> None:
        """Ask the process to stop, from any thread."""
        self._reasons.put(reason)
        self._wakeup_writer.send(b"\0")

    def _handle(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if not self._is_serving:
            logger.info("%s before anything was served: exiting", name)
            os._exit(0)
        if self._is_stopping:
            os._exit(128 + number)
        self._is_stopping = True
        self._reasons.put(name)
