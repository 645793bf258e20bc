"""The interface of batching policies: a policy decides which tasks form a batch, and when."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from server.batching.tasks import Batch, BatchTask
from server.config.batching_parameters import BatchingParameters
from tpuserve.errors import BatchTooLarge


class BatchingPolicy(Protocol):
    """Holds the waiting tasks of one queue and forms batches.

    Only one thread at a time calls a policy, so a policy needs no lock. A policy never blocks and
    reads no clock. A new policy is a class with this interface, passed to `BatchingRunnerFactory`.
    """

    @property
    def waiting(self) -> int:
        """The number of task slices that wait; a task is one slice or several slices."""

    def add(self, task: BatchTask, now: float) -> None:
        """Enqueue a task as one slice or several slices.

        Args:
          task: the task.
          now: the time in seconds of the scheduler's clock.

        Raises:
          BatchTooLarge: the task has more rows than any batch may have.
          QueueFull: the queue has no room at the moment.
        """

    def remove(self, task: BatchTask) -> None:
        """Dequeue the slices of a task that no longer waits; do nothing if none is enqueued."""

    def take(self, now: float) -> Batch | None:
        """Dequeue the batch to run now; return None if the tasks should wait for more tasks."""

    def next_time(self) -> float | None:
        """Return when `take` will return a batch even without new tasks; None if no task waits."""


MakePolicy: TypeAlias = Callable[[BatchingParameters], BatchingPolicy]


def check_size(task: BatchTask, max_batch_size: int) -> None:
    """Check that a task is not larger than the parameter max_batch_size.

    Raises:
      BatchTooLarge: the task has more rows. The text is TensorFlow's.
    """
    if task.size > max_batch_size:
        raise BatchTooLarge(
            f"Task size {task.size} is larger than maximum input batch size {max_batch_size}"
        )
