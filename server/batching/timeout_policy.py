"""TensorFlow Serving's batching policy: a batch runs when it is full or its timeout has passed.

The error texts are those of TensorFlow. Source:
tensorflow/core/kernels/batching_util/shared_batch_scheduler.h.
"""

from collections import deque
from dataclasses import dataclass, field
from math import ceil

from server.batching.policy import check_size
from server.batching.tasks import AloneReason, Batch, BatchTask, TaskSlice
from server.config.batching_parameters import BatchingParameters
from tpuserve.errors import QueueFull


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
