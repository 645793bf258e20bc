"""The scheduler of a model version: its batching queues, and the threads that run their batches."""

import logging
import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeAlias

from server.batching.policy import BatchingPolicy
from server.batching.tasks import AloneReason, Batch, BatchTask
from tpuserve.errors import Unavailable

Clock: TypeAlias = Callable[[], float]
RunBatch: TypeAlias = Callable[[Batch], None]
ReadyBatch: TypeAlias = tuple[RunBatch, Batch]
"""A batch to run now, and the function that runs the batch."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BatchingQueue:
    """A queue of tasks (requests) that may share a batch."""

    policy: BatchingPolicy
    run: RunBatch


class Scheduler:
    """Passes the batches of all batching queues to a thread pool, in round-robin order.

    Each combination of a signature and outputs has a queue. A queue exists only while tasks
    (requests) wait in it, so that clients cannot fill the memory by requesting many combinations.

    Attributes:
      clock: returns seconds, as `time.monotonic` does.
      run_limit: the largest number of batches that run at the same time.

    Args:
      runs: the largest number of batches that run at the same time. Tests pass 0, so that no
        threads start, and call `take` themselves.
    """

    def __init__(self, runs: int, name: str, clock: Clock = time.monotonic) -> None:
        self.clock = clock
        self.run_limit = runs
        self._name = name
        self._queues: OrderedDict[Hashable, BatchingQueue] = OrderedDict()
        # The number of batches that run, or that wait in `_ready` for a thread. While this number
        # equals the run limit, further batches stay in their queues.
        self._running = 0
        # The number of enqueued tasks whose clients still wait for the outputs. While it is not 0,
        # no batch runs in the thread that received its request.
        self._unanswered = 0
        self._ready: deque[ReadyBatch] = deque()
        # The earliest time at which a sleeping thread wakes up by itself, because a batch is ready
        # then. Infinite if all sleeping threads wait for a notification.
        self._next_wakeup = math.inf
        # The threads of requests acquire `_lock` itself, and not the condition that wraps `_lock`:
        # acquiring the condition takes twice as long.
        self._lock = threading.Lock()
        self._condition = threading.Condition(self._lock)
        self._threads: list[threading.Thread] = []
        self._is_closed = False

    def start(self) -> None:
        """Start the first thread. Tasks start the others when batches need them."""
        with self._lock:
            self._start_threads(1)

    @property
    def running(self) -> int:
        """The number of batches that run, or that are ready and wait for a thread."""
        return self._running

    @property
    def waiting(self) -> int:
        """The number of tasks (requests) that wait in all queues."""
        with self._lock:
            return sum(queue.policy.waiting for queue in self._queues.values())

    def try_run_inline(
        self,
        key: Hashable,
        make_queue: Callable[[], BatchingQueue],
        task: BatchTask,
        running_allowed: bool = True,
    ) -> ReadyBatch | None:
        """Enqueue a task, or return a batch of this task that the caller must run at once.

        Returns:
          None if the task was enqueued.

        Raises:
          Unavailable: the scheduler is closed, or the system cannot start its first thread.
        """
        with self._lock:
            if (
                running_allowed
                and key not in self._queues
                and not self._unanswered
                and self._running < self.run_limit
            ):
                self._check_open()
                queue, now = make_queue(), self.clock()
                queue.policy.add(task, now)
                batch = queue.policy.take(now)
                if batch is not None and not queue.policy.waiting:
                    is_idle = not self._running
                    batch.alone_reason = AloneReason.IDLE if is_idle else AloneReason.FREE_RUN
                    self._running += 1
                    return queue.run, batch
                self._start_threads(self.run_limit)
                if batch is not None:
                    self._enqueue_ready((queue.run, batch))
                self._unanswered += 1
                self._store_queue(key, queue, now)
                return None
            self._submit(key, make_queue, task)
            return None

    def try_begin_alone(self) -> bool:
        """Take the slot of a run for one request, if no other runs or waits.

        Returns:
          Whether the caller must run the request, and then call `release_inline_slot`.
        """
        with self._lock:
            if self._running or self._unanswered or self._queues or self._is_closed:
                return False
            self._running += 1
            return True

    def release_inline_slot(self) -> None:
        """Let other batches run after the end of one that ran in the thread of its request."""
        with self._lock:
            self._running -= 1
            if self._queues:
                self._dispatch(self.clock())

    def submit(
        self, key: Hashable, make_queue: Callable[[], BatchingQueue], task: BatchTask
    ) -> None:
        """Enqueue a task, which a thread of the scheduler runs in a batch.

        Raises:
          Unavailable: the scheduler is closed, or the system cannot start its first thread.
        """
        with self._lock:
            self._submit(key, make_queue, task)

    def task_answered(self) -> None:
        """Record that the outputs or the error of an enqueued task were fetched for its client.

        Must be called once for each enqueued task.
        """
        with self._lock:
            self._unanswered -= 1

    def remove(self, key: Hashable, task: BatchTask) -> None:
        """Dequeue a cancelled or timed-out task; do nothing if the task is not in the queue."""
        with self._lock:
            queue = self._queues.get(key)
            if queue is not None:
                queue.policy.remove(task)
                if not queue.policy.waiting:
                    del self._queues[key]

    def take(self, now: float) -> ReadyBatch | None:
        """Dequeue a batch to run now, with the function that runs it; None if no batch is ready.

        The queue of the batch moves to the end of the round-robin order of the queues.
        """
        with self._lock:
            return self._take(now)

    def next_time(self) -> float | None:
        """Return the time at which the next batch is ready even if no further task arrives.

        The time is in seconds of the scheduler's clock; None if no task waits.
        """
        with self._lock:
            return self._next_time()

    def close(self, timeout_seconds: float = 1) -> None:
        """Refuse new tasks, run the waiting tasks and end the threads.

        Args:
          timeout_seconds: the longest wait for the end of each thread. A thread that still runs a
            model then is a daemon thread, which does not prevent the process from ending.
        """
        with self._lock:
            self._is_closed = True
            self._condition.notify_all()
        for thread in self._threads:
            thread.join(timeout_seconds)

    def _submit(
        self, key: Hashable, make_queue: Callable[[], BatchingQueue], task: BatchTask
    ) -> None:
        self._check_open()
        self._start_threads(self.run_limit)
        queue, now = self._queues.get(key) or make_queue(), self.clock()
        queue.policy.add(task, now)
        self._unanswered += 1
        self._store_queue(key, queue, now)

    def _check_open(self) -> None:
        if self._is_closed:
            raise Unavailable("the server is shutting down. Send the request to another server.")

    def _store_queue(self, key: Hashable, queue: BatchingQueue, now: float) -> None:
        self._queues[key] = queue
        self._dispatch(now)

    def _dispatch(self, now: float) -> None:
        """Pass ready batches to threads, as many as the run limit allows."""
        while self._queues and self._running < self.run_limit:
            ready = self._take(now)
            if ready is None:
                next_time = self._next_time()
                if next_time is not None and next_time < self._next_wakeup:
                    # The next batch becomes ready before any sleeping thread would wake up. Wake
                    # one thread now: it sleeps again, but only until the batch is ready.
                    self._condition.notify()
                return
            self._enqueue_ready(ready)

    def _enqueue_ready(self, ready: ReadyBatch) -> None:
        self._running += 1
        self._ready.append(ready)
        self._condition.notify()

    def _take(self, now: float) -> ReadyBatch | None:
        for key, queue in self._queues.items():
            batch = queue.policy.take(now)
            if batch is not None:
                if not self._running and self._unanswered == 1:
                    batch.alone_reason = AloneReason.IDLE
                if queue.policy.waiting:
                    self._queues.move_to_end(key)
                else:
                    del self._queues[key]
                return queue.run, batch
        return None

    def _next_time(self) -> float | None:
        next_times = (queue.policy.next_time() for queue in self._queues.values())
        return min((seconds for seconds in next_times if seconds is not None), default=None)

    def _start_threads(self, count: int) -> None:
        for number in range(len(self._threads), count):
            name = f"{self._name}-{number}"
            thread = threading.Thread(target=self._run_batches, name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                if not number:
                    raise Unavailable(
                        f"the server has no thread to run batches: {error}. Send the request again "
                        f"later, or raise the limit of threads of the server's container."
                    ) from error
                logger.warning("%s: only %d of %d threads run batches", error, number, count)
                return
            self._threads.append(thread)

    def _run_batches(self) -> None:
        ready = self._wait_for_batch()
        while ready is not None:
            run, batch = ready
            try:
                run(batch)
            except Exception:
                # Log the error and continue: the thread must run further batches.
                logger.exception("a batch failed")
            # Delete the references to the finished batch, so that its arrays are freed while the
            # thread waits for the next batch.
            del run, batch
            ready = None
            ready = self._wait_for_batch(has_run=True)

    def _wait_for_batch(self, has_run: bool = False) -> ReadyBatch | None:
        """Wait for the next batch that the calling thread must run; None if it must end."""
        with self._lock:
            # Hold the lock from the end of the last batch until the thread has taken the next.
            if has_run:
                self._running -= 1
            while True:
                now = math.inf if self._is_closed else self.clock()
                ready = self._claim(now)
                if ready is not None:
                    self._dispatch(now)
                    return ready
                if self._is_closed and not self._queues:
                    self._condition.notify_all()
                    return None
                self._sleep(now)

    def _claim(self, now: float) -> ReadyBatch | None:
        if self._ready:
            return self._ready.popleft()
        ready = self._take(now) if self._running < self.run_limit else None
        if ready is not None:
            self._running += 1
        return ready

    def _sleep(self, now: float) -> None:
        next_time = self._next_time() if self._running < self.run_limit else None
        if next_time is None or next_time >= self._next_wakeup:
            # Sleep until another thread notifies this one.
            self._condition.wait()
            return
        self._next_wakeup = next_time
        self._condition.wait(max(0, next_time - now))
        if self._next_wakeup == next_time:
            self._next_wakeup = math.inf
