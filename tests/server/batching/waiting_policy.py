"""A batching policy for tests: a batch is all tasks that wait when a thread is free."""

from server.batching.tasks import Batch, BatchTask, TaskSlice
from server.config.batching_parameters import BatchingParameters


class WaitingTasksPolicy:
    def __init__(self, parameters: BatchingParameters) -> None:
        self._pieces: list[TaskSlice] = []

    @property
    def waiting(self) -> int:
        return len(self._pieces)

    def add(self, task: BatchTask, now: float) -> None:
        self._pieces.append(TaskSlice(task, 0, task.size))

    def remove(self, task: BatchTask) -> None:
        self._pieces = [piece for piece in self._pieces if piece.task is not task]

    def take(self, now: float) -> Batch | None:
        slices, self._pieces = self._pieces, []
        return Batch(tuple(slices)) if slices else None

    def next_time(self) -> float | None:
        return 0 if self._pieces else None
