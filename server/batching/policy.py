"""What forms a batch, and when: the seam between the scheduler and its policies."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from server.batching.tasks import Batch, Task
from server.config.batching_parameters import BatchingParameters


class Policy(Protocol):
    """The waiting tasks of one queue.

    Called by one thread at a time, so that it needs no lock; never blocks, and reads no clock.
    Another policy is another file with a class like this, given to `BatchingRunners`.
    """

    @property
    def waiting(self) -> int:
        """How many pieces of tasks wait."""

    def add(self, task: Task, now: float) -> None:
        """Takes a task in, as a piece or as several.

        Raises:
          BatchTooLarge: it has more rows than a batch can ever have.
          QueueFull: there is no room at the moment.
        """

    def take(self, now: float) -> Batch | None:
        """The batch to run now, as a thread is free to run one; None to wait for more."""

    def next_time(self) -> float | None:
        """When `take` will give a batch though no task is added; None if nothing waits."""


MakePolicy: TypeAlias = Callable[[BatchingParameters], Policy]
