"""The batching policy "continuous": when a batch has run, all waiting requests form the next."""

from collections import deque
from itertools import takewhile

from server.batching.policy import check_size
from server.batching.tasks import AloneReason, Batch, BatchTask, TaskSlice
from server.config.batching_parameters import BatchingParameters
from tpuserve.errors import QueueFull


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
