"""A pool of parse processes, which parse large request bodies."""

import threading

from server.parsing.parse_process import ParseProcess
from server.request import RequestContext
from server.scheduling.model_queue import Turns


class ParseProcessPool:
    """Lends parse processes to requests, whose owners take turns.

    If no process is idle, a new process is started, up to the largest number. A process is kept for
    later requests.

    Args:
      max_processes: The largest number of processes at the same time.
    """

    def __init__(self, max_processes: int) -> None:
        self._max_processes = max_processes
        self._num_lent = 0
        self._idle: list[ParseProcess] = []
        # The requests that wait for a process; each is a plain object.
        self._waiting: Turns[object] = Turns()
        self._is_closed = False
        self._changed = threading.Condition()

    def acquire(self, context: RequestContext) -> ParseProcess:
        """Wait for an idle process, or start one. The caller must call `release` once afterwards.

        The requests of different clients or models take turns.
        """
        ticket, owner = object(), (context.peer, context.model)
        context.cancellation.add_callback(self._wake_all)
        try:
            with self._changed:
                self._waiting.push(owner, ticket)
                try:
                    self._wait_for_turn(ticket, context)
                finally:
                    self._waiting.remove(owner, ticket)
                    self._changed.notify_all()
                self._num_lent += 1
                if self._idle:
                    return self._idle.pop()
        finally:
            context.cancellation.remove_callback(self._wake_all)
        try:
            return ParseProcess()
        except BaseException:
            self.release(None)
            raise

    def release(self, process: ParseProcess | None) -> None:
        """Return a process to the pool."""
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

    def _wait_for_turn(self, ticket: object, context: RequestContext) -> None:
        while True:
            context.check()
            if self._waiting.first is ticket and self._num_lent < self._max_processes:
                return
            self._changed.wait()

    def _wake_all(self) -> None:
        # A cancelled request may call this function in the event loop, which must not block.
        # Waiting for the lock is acceptable, because threads hold this lock only for a very short
        # time.
        with self._changed:
            self._changed.notify_all()
