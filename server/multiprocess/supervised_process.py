"""Starts a process of a server, exchanges messages with it, and ends it, for the supervisor."""

import multiprocessing
import os
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from server.multiprocess.control import ControlChannel, ControlMessage

# Start each process as a new Python interpreter ("spawn") and not by a fork: a fork copies locks
# that other threads hold, but not the threads that would release them.
_CONTEXT = multiprocessing.get_context("spawn")


OnEvent: TypeAlias = Callable[["SupervisedProcess", ControlMessage | None], None]


class SupervisedProcess:
    """A process that the supervisor has started, and the connection to it.

    Attributes:
      name: the name of the process in the log, such as "frontend 1".
    """

    def __init__(
        self,
        name: str,
        main: Callable[..., None],
        arguments: tuple[Any, ...],
        on_event: OnEvent,
    ) -> None:
        """Start the process, and a thread that receives its messages.

        Args:
          name: the name of the process in the log.
          main: the main function of the process. Its arguments are the connection to the
            supervisor, the supervisor's process ID and `arguments`.
          arguments: the further arguments of the main function.
          on_event: called in the receiving thread with each message of the process, and with None
            when the process has ended.

        Raises:
          OSError: the system has no further process, file descriptor or memory.
          RuntimeError: the system has no further thread.
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
        try:
            threading.Thread(target=self._receive, name=name, daemon=True).start()
        except RuntimeError:
            # Nothing would receive the messages of the process, or notice its end.
            self.kill()
            self._control.close()
            raise

    @property
    def pid(self) -> int:
        """The ID of the process."""
        pid = self._process.pid
        assert pid is not None
        return pid

    @property
    def exit_code(self) -> int | None:
        """The exit status, or the negative number of the signal that has ended the process.

        The result is None while the process runs.
        """
        return self._process.exitcode

    def send(self, name: str, value: Any = None, connection: Any = None) -> None:
        """Send a message to the process; the arguments are those of `ControlChannel.send`."""
        self._control.send(name, value, connection)

    def kill(self) -> None:
        """Kill the process with SIGKILL, and wait until it has ended."""
        self._process.kill()
        self._process.join()

    def _receive(self) -> None:
        while (message := self._control.receive()) is not None:
            self._on_event(self, message)
        # The connection is closed, so the process has ended or is about to end. Kill the process,
        # in case it does not end by itself.
        self.kill()
        self._control.close()
        self._on_event(self, None)
