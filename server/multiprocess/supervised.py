"""Starts a process of a server for the supervisor, exchanges messages with it, and ends it."""

import multiprocessing
import os
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from server.multiprocess.control import ControlChannel, ControlMessage

# Start processes afresh, never by a fork: a fork copies the state of locks, but not the threads
# that would release them.
_CONTEXT = multiprocessing.get_context("spawn")


OnEvent: TypeAlias = Callable[["SupervisedProcess", ControlMessage | None], None]


class SupervisedProcess:
    """A running process, with the connection to it.

    Attributes:
      name: the name for the log, such as "frontend 1".
    """

    def __init__(
        self,
        name: str,
        main: Callable[..., None],
        arguments: tuple[Any, ...],
        on_event: OnEvent,
    ) -> None:
        """Start the process.

        Args:
          name: the name for the log.
          main: the main function of the process, which gets the connection to the supervisor, the
            supervisor's process ID and the arguments.
          arguments: further arguments of the main function.
          on_event: called in a thread of its own with each message of the process, and with None
            when the process has ended.
        """
        self.name = name
        here, there = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(
            target=main, name=name, args=(there, os.getpid(), *arguments), daemon=True
        )
        self._process.start()
        there.close()
        self._control = ControlChannel(here)
        self._on_event = on_event
        threading.Thread(target=self._receive, name=name, daemon=True).start()

    @property
    def pid(self) -> int:
        """The process ID."""
        pid = self._process.pid
        assert pid is not None
        return pid

    @property
    def exit_code(self) -> int | None:
        """The exit status, or minus the number of the signal that has ended the process."""
        return self._process.exitcode

    def send(self, name: str, value: Any = None, connection: Any = None) -> None:
        """Send a message to the process; see `ControlChannel.send`."""
        self._control.send(name, value, connection)

    def wait(self, timeout_seconds: float) -> bool:
        """Wait until the process has ended; return whether it has."""
        self._process.join(timeout_seconds)
        return self._process.exitcode is not None

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.join()

    def _receive(self) -> None:
        while (message := self._control.receive()) is not None:
            self._on_event(self, message)
        # The connection is closed, so the process has ended or is stuck while it ends. Kill the
        # process if it is stuck.
        self.kill()
        self._control.close()
        self._on_event(self, None)
