"""The interface of batching policies: a policy decides which tasks form a batch, and when."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from server.batching.tasks import Batch, BatchTask
from server.config.batching_parameters import BatchingParameters
from tpuserve.errors import InvalidInput


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
