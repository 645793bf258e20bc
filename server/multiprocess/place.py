"""A slot for one process of a server: when the process ends, a new process is started."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from server.multiprocess.supervised_process import OnEvent, SupervisedProcess

# The delay before a process that has failed is started again. It is _FIRST_BACKOFF_SECONDS at first
# and doubles each time, up to _MAX_BACKOFF_SECONDS. After a process has run for _STABLE_SECONDS,
# the delay is _FIRST_BACKOFF_SECONDS again.
_FIRST_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 0.5, 30.0
_STABLE_SECONDS = 60.0


@dataclass(eq=False)
class Place:
    """A slot for one process of a server (the engine or a frontend), with its current process.

    Attributes:
      name: the name for the log, such as "frontend 1".
      main: the main function of the process in this slot.
      arguments: the arguments of the main function, except the first two: `SupervisedProcess` adds
        these.
      process: the running process; None while no process runs in this slot.
      is_ready: whether the process has started, so that it can be connected to other processes.
      is_connected: for a frontend process, whether it is connected to an engine process.
      restart_at: the time at which to start the next process, by the clock `time.monotonic`; None
        if no start is planned, for example while a process runs.
    """

    name: str
    main: Callable[..., None]
    arguments: tuple[Any, ...]
    process: SupervisedProcess | None = None
    is_ready: bool = False
    is_connected: bool = False
    restart_at: float | None = None
    _started_at: float = 0.0
    _backoff_seconds: float = _FIRST_BACKOFF_SECONDS

    def start(self, on_event: OnEvent) -> None:
        """Start a process in this slot.

        `on_event` is called with each message of the process, and with None when it has ended.

        Raises:
          OSError, RuntimeError: the process cannot be started, as by `SupervisedProcess`.
        """
        self.restart_at = None
        self._started_at = time.monotonic()
        self.process = SupervisedProcess(self.name, self.main, self.arguments, on_event)

    def end(self) -> float:
        """Remove the ended process, and return the seconds until the next process is started.

        There is no process to remove if its start has failed.
        """
        now = time.monotonic()
        if now - self._started_at >= _STABLE_SECONDS:
            self._backoff_seconds = _FIRST_BACKOFF_SECONDS
        seconds = self._backoff_seconds
        self._backoff_seconds = min(2 * seconds, _MAX_BACKOFF_SECONDS)
        self.process = None
        self.is_ready = self.is_connected = False
        self.restart_at = now + seconds
        return seconds
