"""The queues of a server and the threads that they share."""

import logging
import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeAlias

from server.admission.nonblocking import WouldBlock
from server.batching.policy import Policy
from server.batching.tasks import Batch, Task
from tpuserve.errors import Unavailable

Clock: TypeAlias = Callable[[], float]
RunBatch: TypeAlias = Callable[[Batch], None]
Taken: TypeAlias = tuple[RunBatch, Batch]
"""A batch, and what runs it."""

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
    leave nothing behind. A batch that is due at once with a single task in it is run by the
    thread that the task comes from, in the place of one of the scheduler's own: to hand it over
    and back costs more than a small model does.

    Attributes:
      clock: seconds, as of `time.monotonic`.
    """

    def __init__(self, threads: int, name: str, clock: Clock = time.monotonic) -> None:
        """Takes how many batches run at a time; as many threads start once one is needed.

        Args:
          threads: 0 for none, where `take` is called from elsewhere.
          name: of the threads.
        """
        self.clock = clock
        self._thread_count = threads
        self._name = name
        self._queues: OrderedDict[Hashable, Queue] = OrderedDict()
        # Those that are run at the moment, and those that are about to be.
        self._running = 0
        self._due: deque[Taken] = deque()
        # The earliest time that a thread sleeps until.
        self._alarm = math.inf
        # The lock itself is what requests take: through the condition it costs twice as much.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._threads: list[threading.Thread] = []
        self._is_closed = False

    @property
    def waiting(self) -> int:
        """How many pieces of tasks wait, in all queues."""
        with self._lock:
            return sum(queue.policy.waiting for queue in self._queues.values())

    def begin(
        self,
        key: Hashable,
        make_queue: Callable[[], Queue],
        task: Task,
        blocking_allowed: bool = True,
    ) -> Taken | None:
        """Puts a task into a queue, or has the caller run it; arguments and errors as of `submit`.

        Args:
          may_wait: whether the caller may wait for the task.

        Returns:
          A batch of the task alone, which the caller runs, and then calls `end`; None where the
          task waits for its turn.

        Raises:
          WouldWait: the caller may not, and would have to; the task is in no queue.
        """
        with self._lock:
            if key not in self._queues and self._running < self._thread_count:
                self._check_open()
                queue, now = make_queue(), self.clock()
                queue.policy.add(task, now)
                batch = queue.policy.take(now)
                if batch is not None and not queue.policy.waiting:
                    self._running += 1
                    return queue.run, batch
                if blocking_allowed:
                    if batch is not None:
                        self._hand_over((queue.run, batch))
                    self._keep(key, queue, now)
                    return None
            if not blocking_allowed:
                raise WouldBlock
            self._submit(key, make_queue, task)
            return None

    def end(self) -> None:
        """The batch that the caller was to run has ended."""
        with self._lock:
            self._running -= 1
            if self._queues:
                self._look(self.clock())

    def submit(self, key: Hashable, make_queue: Callable[[], Queue], task: Task) -> None:
        """Puts a task into a queue.

        Args:
          key: tells the queue.
          make_queue: makes it, where it is not there.

        Raises:
          BatchTooLarge, QueueFull: as of `Policy.add`.
          Unavailable: the scheduler is closed.
        """
        with self._lock:
            self._submit(key, make_queue, task)

    def take(self, now: float) -> Taken | None:
        """A batch to run now, and what runs it; None if there is none yet.

        The queue that it is from comes last from here on.
        """
        with self._lock:
            return self._take(now)

    def next_time(self) -> float | None:
        """When there will be a batch though no task is added; None if nothing waits."""
        with self._lock:
            return self._next_time()

    def close(self, timeout_seconds: float = 1) -> None:
        """Runs what waits, and ends the threads; takes no task from here on.

        Args:
          timeout_seconds: how long to wait for each thread; one that runs a model for longer is
            no reason not to end the process.
        """
        with self._lock:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout_seconds)

    def _submit(self, key: Hashable, make_queue: Callable[[], Queue], task: Task) -> None:
        self._check_open()
        queue, now = self._queues.get(key) or make_queue(), self.clock()
        queue.policy.add(task, now)
        self._keep(key, queue, now)

    def _check_open(self) -> None:
        if self._is_closed:
            raise Unavailable("the server is shutting down. Send the request to another one.")

    def _keep(self, key: Hashable, queue: Queue, now: float) -> None:
        self._queues[key] = queue
        if len(self._threads) < self._thread_count:
            self._start_threads()
        self._look(now)

    def _look(self, now: float) -> None:
        """Hands over what is due, as far as may run, and sees to it that the rest will be."""
        while self._queues and self._running < self._thread_count:
            taken = self._take(now)
            if taken is None:
                next_time = self._next_time()
                if next_time is not None and next_time < self._alarm:
                    # Somebody is to sleep until then, and no longer.
                    self._changed.notify()
                return
            self._hand_over(taken)

    def _hand_over(self, taken: Taken) -> None:
        self._running += 1
        self._due.append(taken)
        self._changed.notify()

    def _take(self, now: float) -> Taken | None:
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
        taken = self._next()
        while taken is not None:
            run, batch = taken
            try:
                run(batch)
            except Exception:
                # A thread that ends here would be missing to all that comes later.
                logger.exception("a batch has failed")
            del run, batch
            taken = None
            taken = self._next(1)

    def _next(self, ended: int = 0) -> Taken | None:
        """The batch that the calling thread is to run, waited for; None if there will be none.

        Args:
          ended: how many batches it has run since it last asked.
        """
        with self._lock:
            # In one step with the look for another one: that comes before what is new.
            self._running -= ended
            while True:
                now = math.inf if self._is_closed else self.clock()
                taken = self._take_over(now)
                if taken is not None:
                    self._look(now)
                    return taken
                if self._is_closed and not self._queues:
                    self._changed.notify_all()
                    return None
                self._sleep(now)

    def _take_over(self, now: float) -> Taken | None:
        if self._due:
            return self._due.popleft()
        taken = self._take(now) if self._running < self._thread_count else None
        if taken is not None:
            self._running += 1
        return taken

    def _sleep(self, now: float) -> None:
        next_time = self._next_time() if self._running < self._thread_count else None
        if next_time is None or next_time >= self._alarm:
            # Another thread sees to what waits: the one that sleeps until then, or that is done.
            self._changed.wait()
            return
        self._alarm = next_time
        self._changed.wait(max(0, next_time - now))
        if self._alarm == next_time:
            self._alarm = math.inf
