"""A pool of parse processes, which parse large request bodies."""

import threading
import time
from collections.abc import Hashable

from server.admission.cancellation import Cancellation
from server.parsing.parse_process import ParseProcess
from server.scheduling.turns import Turns
from tpuserve.errors import DeadlineExceeded


class ParseProcessPool:
    """Lends parse processes to requests, whose owners take turns.

    If no process is idle, a new process is started, up to the largest number. A process is kept for
    later requests.
    """

    def __init__(self, max_processes: int) -> None:
        """Create a pool without processes.

        Args:
          max_processes: The largest number of processes at the same time.
        """
        self._max_processes = max_processes
        self._num_lent = 0
        self._idle: list[ParseProcess] = []
        # The requests that wait for a process; each is a plain object.
        self._waiting: Turns[object] = Turns()
        self._is_closed = False
        self._changed = threading.Condition()

    def acquire(
        self,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
        owner: Hashable = "",
    ) -> ParseProcess:
        """Wait for an idle process, or start one. The caller must call `release` once afterwards.

        Args:
          timeout_ms: The longest wait in milliseconds. None means no limit.
          cancellation: Ends the wait if the request is cancelled; None if it cannot be cancelled.
          owner: Whose request it is. The requests of one owner come in the order of arrival.

        Raises:
          DeadlineExceeded: No process became idle within the time.
          Cancelled: The request was cancelled.
          OSError: No process can be started.
        """
        ticket = object()
        if cancellation is not None:
            cancellation.add_callback(self._wake_all)
        try:
            with self._changed:
                self._waiting.push(owner, ticket)
                try:
                    self._wait_for_turn(ticket, timeout_ms, cancellation)
                finally:
                    self._waiting.remove(owner, ticket)
                    self._changed.notify_all()
                self._num_lent += 1
                if self._idle:
                    return self._idle.pop()
        finally:
            if cancellation is not None:
                cancellation.remove_callback(self._wake_all)
        try:
            return ParseProcess()
        except BaseException:
            self.release(None)
            raise

    def release(self, process: ParseProcess | None) -> None:
        """Return a process to the pool.

        Args:
          process: The process; None if the process has ended.
        """
        with self._changed:
            self._num_lent -= 1
            if process is not None and not self._is_closed:
                self._idle.append(process)
                process = None
            self._changed.notify_all()
        if process is not None:
            process.close()

    def close(self) -> None:
        """End the idle processes. A process in use ends when it is released."""
        with self._changed:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for process in idle:
            process.close()

    def _wait_for_turn(
        self, ticket: object, timeout_ms: float | None, cancellation: Cancellation | None
    ) -> None:
        deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        while True:
            if cancellation is not None:
                cancellation.raise_if_cancelled()
            if self._waiting.first is ticket and self._num_lent < self._max_processes:
                return
            remaining = None if deadline is None else deadline - time.monotonic()
            if remaining is not None and remaining <= 0:
                raise DeadlineExceeded(
                    f"the request waited {timeout_ms:g} ms for other large requests to be parsed. "
                    f"Send the request again later."
                )
            self._changed.wait(remaining)

    def _wake_all(self) -> None:
        # A cancelled request may call this function in the event loop, which must not block.
        # Waiting for the lock is acceptable, because threads hold this lock only for a very short
        # time.
        with self._changed:
            self._changed.notify_all()
