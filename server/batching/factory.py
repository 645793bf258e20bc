"""Creates for each model version the batching runner, which runs requests in batches."""

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from math import ceil
from pathlib import Path
from typing import TypeAlias
from weakref import WeakValueDictionary

from server.batching.batch_executor import BatchingContext
from server.batching.policy import MakePolicy, check_size
from server.batching.runner import BatchingRunner
from server.batching.scheduler import Clock, Scheduler
from server.batching.statistics import BatchingStatistics
from server.batching.tasks import AloneReason, Batch, BatchTask, TaskSlice
from server.config import batching_parameters
from server.config.batching_parameters import CONTINUOUS, PER_MODEL_FILE, BatchingParameters
from server.config.model_config import XLA_ENGINE
from server.metrics import Metrics
from server.metrics.collectors import Labels
from server.servables.direct_runner import DirectRunner
from server.servables.servable import InferenceRunner, Model, metagraph_of
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


logger = logging.getLogger(__name__)

FindUnbatched: TypeAlias = Callable[[Model, Path, BatchingParameters], Mapping[str, str]]
"""(model, its directory, its parameters) → signature name → why it must not be batched."""


class BatchingRunnerFactory:
    """Creates the batching runners, which run the requests of a version in batches.

    Each version has its own scheduler and threads, so that the batches of a slow model do not delay
    those of another model.

    Args:
      metrics: records batches for the metrics endpoint; None for new metrics that nobody reads.
      per_model: whether the directory of each version may hold a file with batching parameters for
        this version, as with TensorFlow Serving's flag --enable_per_model_batching_parameters.
      find_unbatched: finds the signatures of a model that the policy "continuous" must not
        batch, because the rows of a batch would change each other's outputs.
    """

    def __init__(
        self,
        parameters: BatchingParameters,
        *,
        metrics: Metrics | None = None,
        per_model: bool = False,
        make_policy: MakePolicy = TimeoutPolicy,
        find_unbatched: FindUnbatched = lambda model, directory, parameters: {},
        clock: Clock = time.monotonic,
    ) -> None:
        self._parameters = parameters
        self._metrics = Metrics() if metrics is None else metrics
        self._per_model = per_model
        self._make_policy = make_policy
        self._find_unbatched = find_unbatched
        self._clock = clock
        # The name of a version → its scheduler. The references are weak, so that a scheduler is
        # freed when its version is unloaded.
        self._schedulers: WeakValueDictionary[str, Scheduler] = WeakValueDictionary()
        self._metrics.watch_queue(self._count_waiting)
        self._metrics.watch_batching(self._read_runs)

    def wrap(self, model: Model, directory: Path, name: str = "") -> InferenceRunner:
        """Create the runner of a version; a direct runner if its requests are not batched.

        Args:
          name: the name of the version, such as "resnet/3".
        """
        parameters = self._parameters
        if self._per_model:
            path = directory / PER_MODEL_FILE
            if not path.exists():
                return DirectRunner(model)
            parameters = batching_parameters.read_batching_parameters(path)
        if getattr(model.choice, "runtime", "") == XLA_ENGINE:
            parameters = parameters.padded_to_powers()
        is_continuous = parameters.batching_policy == CONTINUOUS
        statistics = BatchingStatistics(name, parameters.batching_policy, self._metrics)
        context = BatchingContext(
            parameters,
            self._metrics,
            statistics,
            (*_model_and_version(name), metagraph_of(model)),
            self._parameters.thread_pool_name,
            self._clock,
        )
        # A signature that writes is never batched, and never run by a check.
        unbatched = {
            signature_name: f"it {signature.write}"
            for signature_name, signature in model.signatures.items()
            if signature.write is not None
        }
        if is_continuous:
            unbatched |= self._find_unbatched(model, directory, parameters)
            runs = parameters.num_batch_threads or 1
        else:
            runs = self._parameters.num_batch_threads or os.cpu_count() or 1
        for signature_name, reason in unbatched.items():
            logger.warning(
                "%s: signature %s is served without batching: %s", directory, signature_name, reason
            )
        scheduler = Scheduler(runs, f"{parameters.thread_pool_name}-{name}", self._clock)
        # At the limit of threads of a container, one thread runs all batches.
        scheduler.start()
        self._schedulers[name] = scheduler
        statistics.set_unbatched(unbatched)
        statistics.read_runs = lambda: (scheduler.running, scheduler.run_limit)
        return BatchingRunner(
            model,
            ContinuousPolicy if is_continuous else self._make_policy,
            scheduler,
            context,
            unbatched,
            close=scheduler.close,
        )

    def close(self, timeout_seconds: float = 1) -> None:
        """Refuse new tasks, run the waiting tasks of all versions, and end the threads.

        `timeout_seconds` is the longest wait for the end of each thread.
        """
        for scheduler in list(self._schedulers.values()):
            scheduler.close(timeout_seconds)

    def _count_waiting(self) -> dict[Labels, float]:
        """Return the number of requests that wait for a batch, by model: (model name,) → number."""
        waiting: dict[Labels, float] = {}
        for name, scheduler in list(self._schedulers.items()):
            model, _ = _model_and_version(name)
            waiting[model,] = waiting.get((model,), 0) + scheduler.waiting
        return waiting

    def _read_runs(self) -> dict[Labels, tuple[int, int]]:
        return {
            _model_and_version(name): (scheduler.running, scheduler.run_limit)
            for name, scheduler in list(self._schedulers.items())
        }


def _model_and_version(name: str) -> tuple[str, str]:
    model, _, version = name.rpartition("/")
    return model, version
