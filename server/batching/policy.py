"""Batching policies, which decide which tasks form a batch, and when: two, and their interface."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from math import ceil
from typing import Protocol, TypeAlias

from server.batching.tasks import AloneReason, Batch, BatchTask, TaskSlice
from server.config.batching_parameters import BatchingParameters
from tpuserve.errors import InvalidInput, QueueFull


class BatchingPolicy(Protocol):
    """Holds the waiting tasks (requests) of one batching queue, and forms batches of them.

    The scheduler calls a policy under its lock, so a policy needs no lock. A policy must not block,
    and gets the time as an argument instead of reading a clock.
    """

    @property
    def waiting(self) -> int:
        """The number of waiting tasks. A task that is split into several slices counts once."""

    def add(self, task: BatchTask, now: float) -> None:
        """Enqueue a task as one slice, or as several slices if the task is larger than a batch.

        Args:
          now: the time in seconds of the scheduler's clock.
        """

    def remove(self, task: BatchTask) -> None:
        """Dequeue the slices of a cancelled or timed-out task, if slices of it are enqueued."""

    def take(self, now: float) -> Batch | None:
        """Dequeue the batch to run now; None if no task waits or the batch should grow further."""

    def next_time(self) -> float | None:
        """Return the time at which `take` returns a batch even if no further task arrives.

        The scheduler calls `take` again at this time. None means that no task waits.
        """


MakePolicy: TypeAlias = Callable[[BatchingParameters], BatchingPolicy]


def check_size(task: BatchTask, max_batch_size: int) -> None:
    """Check that a task has no more rows (examples) than the parameter max_batch_size."""
    if task.size > max_batch_size:
        raise InvalidInput(
            f"Task size {task.size} is larger than maximum input batch size {max_batch_size}"
        )


@dataclass
class _OpenBatch:
    started: float
    slices: list[TaskSlice] = field(default_factory=list)
    size: int = 0


class TimeoutPolicy:
    """Forms batches that run when they are full, or batch_timeout_micros after their first task.

    Batches run in the order of their creation. A new task (request) joins the last batch (the open
    batch) until this batch is full.
    """

    def __init__(self, parameters: BatchingParameters) -> None:
        self._parameters = parameters
        self._timeout_seconds = parameters.batch_timeout_micros / 1e6
        self._batches: deque[_OpenBatch] = deque()

    @property
    def waiting(self) -> int:
        """The number of waiting tasks. A task that is split into several slices counts once."""
        return sum(part.is_last for batch in self._batches for part in batch.slices)

    def add(self, task: BatchTask, now: float) -> None:
        """Enqueue a task in the last batch, and if this batch has no room, in new batches."""
        parameters = self._parameters
        check_size(task, parameters.max_batch_size)
        largest = parameters.largest_batch
        room = largest - self._batches[-1].size if self._batches else 0
        if not parameters.enable_large_batch_splitting and room < task.size:
            room = 0
        new_batches = ceil(max(task.size - room, 0) / largest) or int(not self._batches)
        if len(self._batches) + new_batches > parameters.max_enqueued_batches:
            raise QueueFull(
                f"The batch scheduling queue to which this task was submitted is full; currently "
                f"{len(self._batches)} batches enqueued and max_enqueued_batches is "
                f"{parameters.max_enqueued_batches}"
            )
        start = min(room, task.size)
        if start or not new_batches:
            self._append(TaskSlice(task, 0, start))
        for _ in range(new_batches):
            self._batches.append(_OpenBatch(now))
            self._append(TaskSlice(task, start, min(start + largest, task.size)))
            start += largest

    def remove(self, task: BatchTask) -> None:
        """Dequeue the slices of a task, and each batch that has no other slices."""
        for batch in self._batches:
            slices = [task_slice for task_slice in batch.slices if task_slice.task is not task]
            if len(slices) < len(batch.slices):
                batch.slices = slices
                batch.size = sum(task_slice.size for task_slice in slices)
        self._batches = deque(batch for batch in self._batches if batch.slices)

    def take(self, now: float) -> Batch | None:
        """Dequeue the oldest batch if it is complete or has timed out; else return None.

        A batch is complete if it has the largest size, or if a later batch exists.
        """
        if not self._batches:
            return None
        oldest = self._batches[0]
        is_closed = len(self._batches) > 1 or oldest.size >= self._parameters.largest_batch
        if not is_closed and now < oldest.started + self._timeout_seconds:
            return None
        slices = tuple(self._batches.popleft().slices)
        return Batch(slices, AloneReason.FULL if self._batches else AloneReason.ONLY_ONE)

    def next_time(self) -> float | None:
        """Return the time at which the oldest batch times out; None if no task waits."""
        return self._batches[0].started + self._timeout_seconds if self._batches else None

    def _append(self, task_slice: TaskSlice) -> None:
        batch = self._batches[-1]
        batch.slices.append(task_slice)
        batch.size += task_slice.size


class ContinuousPolicy:
    """Forms a batch of all waiting tasks, up to the largest size, in the order of their arrival.

    Batches grow with the load, because more requests arrive while a batch runs.
    """

    def __init__(self, parameters: BatchingParameters) -> None:
        self._parameters = parameters
        self._max_rows = parameters.max_enqueued_batches * parameters.largest_batch
        self._slices: deque[TaskSlice] = deque()
        self._rows = 0

    @property
    def waiting(self) -> int:
        """The number of waiting tasks. A task that is split into several slices counts once."""
        return sum(part.is_last for part in self._slices)

    def add(self, task: BatchTask, now: float) -> None:
        """Enqueue a task; a task that is larger than a batch is split into several slices.

        Raises:
          QueueFull: the queue would hold more rows than `max_enqueued_batches` batches.
        """
        check_size(task, self._parameters.max_batch_size)
        if self._slices and self._rows + task.size > self._max_rows:
            raise QueueFull(
                f"The batch scheduling queue to which this task was submitted is full; currently "
                f"{self._rows} rows enqueued and max_enqueued_batches is "
                f"{self._parameters.max_enqueued_batches} batches of "
                f"{self._parameters.largest_batch} rows"
            )
        largest = self._parameters.largest_batch
        for start in range(0, max(task.size, 1), largest):
            self._slices.append(TaskSlice(task, start, min(start + largest, task.size)))
        self._rows += task.size

    def take(self, now: float) -> Batch | None:
        """Dequeue the next batch; None if no task waits."""
        if not self._slices:
            return None
        max_rows = self._choose_size()
        first = self._slices.popleft()
        slices, size = [first], first.size
        while self._slices and size + self._slices[0].size <= max_rows:
            slices.append(self._slices.popleft())
            size += slices[-1].size
        self._rows -= size
        return Batch(tuple(slices), AloneReason.FULL if self._slices else AloneReason.ONLY_ONE)

    def next_time(self) -> float | None:
        """Return 0, because a waiting task can always run; None if no task waits."""
        return 0 if self._slices else None

    def remove(self, task: BatchTask) -> None:
        """Dequeue all waiting slices of a task."""
        removed = [task_slice for task_slice in self._slices if task_slice.task is task]
        for task_slice in removed:
            self._slices.remove(task_slice)
            self._rows -= task_slice.size

    def _choose_size(self) -> int:
        largest = self._parameters.largest_batch
        rows = min(self._rows, largest)
        padding = self._parameters.padded_size(rows) - rows
        smaller = list(takewhile(lambda size: size < rows, self._parameters.allowed_batch_sizes))
        if smaller and padding > rows - smaller[-1]:
            return smaller[-1]
        return largest
