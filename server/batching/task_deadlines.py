"""Ends the tasks (requests) that still wait for a batch when their deadlines pass."""

import math
import threading

from server.batching.scheduler import Clock
from server.batching.tasks import BatchTask
from server.process.alarm import Alarm, log_exceptions


class TaskDeadlines:
    """Ends tasks at their deadlines. Thread-safe.

    No thread waits for the batch of a gRPC call or of a REST request, so no thread of these
    requests can end them.
    """

    def __init__(self, clock: Clock) -> None:
        """Create the object without tasks.

        Args:
          clock: returns seconds, as `time.monotonic` does: the clock of the tasks' deadlines.
        """
        self._clock = clock
        self._deadlines: dict[BatchTask, float] = {}
        self._lock = threading.Lock()
        self._alarm = Alarm(self.expire, "batch-deadlines", clock)

    def add(self, task: BatchTask) -> None:
        """End a task with DeadlineExceeded at its deadline, unless it is removed before.

        The method does nothing if the task has no deadline.
        """
        if task.deadline is None:
            return
        with self._lock:
            self._deadlines[task] = task.deadline
        self._alarm.set(task.deadline)

    def remove(self, task: BatchTask) -> None:
        """Forget a task, which is answered; do nothing for a task that was not added."""
        with self._lock:
            self._deadlines.pop(task, None)

    def expire(self) -> float:
        """End the tasks whose deadlines have passed; exceptions of their callbacks are logged.

        Returns:
          The deadline that passes next, in seconds of the clock; infinite for no such deadline.
        """
        now = self._clock()
        with self._lock:
            expired = [task for task in self._deadlines if task.deadline_exceeded(now)]
            for task in expired:
                del self._deadlines[task]
            following = min(self._deadlines.values(), default=math.inf)
        for task in expired:
            with log_exceptions():
                task.fail_deadline()
        return following

    def start(self) -> None:
        """Start the thread that ends tasks, unless it runs already.

        Raises:
          RuntimeError: the system cannot start a thread.
        """
        self._alarm.start()

    def close(self) -> None:
        """End the thread. Tasks then no longer end at their deadlines."""
        self._alarm.close()
