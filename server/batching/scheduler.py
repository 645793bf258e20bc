"""The queues of a server and the threads that they share."""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeAlias

from server.batching.policy import Policy
from server.batching.tasks import Batch, Task
from tpuserve.errors import Unavailable

Clock: TypeAlias = Callable[[], float]
RunBatch: TypeAlias = Callable[[Batch], None]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Queue:
    """Tasks that can be in one batch, and what runs their batches.

    Attributes:
      run: called in one of the scheduler's threads.
    """

    policy: Policy
    run: RunBatch


class Scheduler:
    """Gives the batches of all queues to its threads, one queue after the other.

    A queue is there as long as something waits in it: clients that ask for ever other outputs
    leave nothing behind.

    Attributes:
      clock: seconds, as of `time.monotonic`.
    """

    def __init__(self, threads: int, name: str, clock: Clock = time.monotonic) -> None:
        """Takes how many threads run batches; they start with the first task.

        Args:
          threads: 0 for none, where `take` is called from elsewhere.
          name: of the threads.
        """
        self.clock = clock
        self._thread_count = threads
        self._name = name
        self._queues: OrderedDict[Hashable, Queue] = OrderedDict()
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._is_closed = False

    @property
    def waiting(self) -> int:
        """How many pieces of tasks wait, in all queues."""
        with self._changed:
            return sum(queue.policy.waiting for queue in self._queues.values())

    def submit(self, key: Hashable, make_queue: Callable[[], Queue], task: Task) -> None:
        """Puts a task into a queue.

        Args:
          key: tells the queue.
          make_queue: makes it, where it is not there.

        Raises:
          BatchTooLarge, QueueFull: as of `Policy.add`.
          Unavailable: the scheduler is closed.
        """
        with self._changed:
            if self._is_closed:
                raise Unavailable("the server is shutting down. Send the request to another one.")
            queue = self._queues.get(key) or make_queue()
            queue.policy.add(task, self.clock())
            self._queues[key] = queue
            if len(self._threads) < self._thread_count:
                self._start_threads()
            self._changed.notify()

    def take(self, now: float) -> tuple[RunBatch, Batch] | None:
        """A batch to run now, and what runs it; None if there is none yet.

        The queue that it is from comes last from here on.
        """
        with self._changed:
            return self._take(now)

    def next_time(self) -> float | None:
        """When there will be a batch though no task is added; None if nothing waits."""
        with self._changed:
            return self._next_time()

    def close(self, timeout_seconds: float = 1) -> None:
        """Runs what waits, and ends the threads; takes no task from here on.

        Args:
          timeout_seconds: how long to wait for each thread; one that runs a model for longer is
            no reason not to end the process.
        """
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout_seconds)

    def _take(self, now: float) -> tuple[RunBatch, Batch] | None:
        for key, queue in self._queues.items():
            batch = queue.policy.take(now)
            if batch is not None:
                if queue.policy.waiting:
                    self._queues.move_to_end(key)
                else:
                    del self._queues[key]
                return queue.run, batch
        return None

    def _next_time(self) -> float | None:
        times = [queue.policy.next_time() for queue in self._queues.values()]
        return min((each for each in times if each is not None), default=None)

    def _start_threads(self) -> None:
        for number in range(self._thread_count):
            name = f"{self._name}-{number}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        while True:
            with self._changed:
                taken = self._wait_for_batch()
                if taken is None:
                    return
                if self._queues:
                    # Whoever waited for nothing must learn that there is something to wait for.
                    self._changed.notify()
            run, batch = taken
            try:
                run(batch)
            except Exception:
                # A thread that ends here would be missing to all that comes later.
                logger.exception("a batch has failed")
            del run, batch, taken

    def _wait_for_batch(self) -> tuple[RunBatch, Batch] | None:
        while True:
            now = float("inf") if self._is_closed else self.clock()
            taken = self._take(now)
            if taken is not None or self._is_closed:
                return taken
            next_time = self._next_time()
            self._changed.wait(None if next_time is None else max(0, next_time - now))
