"""TensorFlow Serving's policy: a batch waits until it is full or its time is up.

The texts are TensorFlow's.
Source: tensorflow/core/kernels/batching_util/shared_batch_scheduler.h.
"""

from collections import deque
from dataclasses import dataclass, field
from math import ceil

from server.batching.tasks import Batch, Piece, Task
from server.config.batching_parameters import BatchingParameters
from tpuserve.errors import BatchTooLarge, QueueFull


@dataclass
class _Forming:
    started: float
    pieces: list[Piece] = field(default_factory=list)
    size: int = 0


class TimedPolicy:
    """Batches in the order of their first tasks; the last of them is open for more."""

    def __init__(self, parameters: BatchingParameters) -> None:
        """Takes sizes, times and bounds."""
        self._parameters = parameters
        self._timeout = parameters.batch_timeout_micros / 1e6
        self._batches: deque[_Forming] = deque()

    @property
    def waiting(self) -> int:
        """How many pieces of tasks wait."""
        return sum(len(each.pieces) for each in self._batches)

    def add(self, task: Task, now: float) -> None:
        """Puts a task into the open batch; where it does not fit, into a new one or several.

        Raises:
          BatchTooLarge, QueueFull: as of `Policy`.
        """
        parameters = self._parameters
        if task.size > parameters.max_batch_size:
            raise BatchTooLarge(
                f"Task size {task.size} is larger than maximum input batch size "
                f"{parameters.max_batch_size}"
            )
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
            self._put(Piece(task, 0, start))
        for _ in range(new_batches):
            self._batches.append(_Forming(now))
            self._put(Piece(task, start, min(start + largest, task.size)))
            start += largest

    def take(self, now: float) -> Batch | None:
        """The oldest batch, if it is full, followed by another, or has waited its time."""
        if not self._batches:
            return None
        oldest = self._batches[0]
        is_closed = len(self._batches) > 1 or oldest.size >= self._parameters.largest_batch
        if not is_closed and now < oldest.started + self._timeout:
            return None
        return Batch(tuple(self._batches.popleft().pieces))

    def next_time(self) -> float | None:
        """When the time of the oldest batch is up; None if nothing waits."""
        return self._batches[0].started + self._timeout if self._batches else None

    def _put(self, piece: Piece) -> None:
        batch = self._batches[-1]
        batch.pieces.append(piece)
        batch.size += piece.size
