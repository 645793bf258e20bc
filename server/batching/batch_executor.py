"""The batch executor: answers the requests of a batch with one run of the model."""

import logging
from collections.abc import Callable, Mapping
from typing import TypeAlias

from server.batching import merge
from server.batching.scheduler import Clock
from server.batching.tasks import Batch, TaskSlice
from server.config.batching_parameters import BatchingParameters
from server.metrics import Metrics
from server.servables.servable import Array
from tpuserve.errors import InvalidInput, ModelExecutionError, TpuserveError
from tpuserve.saved_model.signature import Signature

logger = logging.getLogger(__name__)


RunModel: TypeAlias = Callable[[Mapping[str, Array], float | None], Mapping[str, Array]]
"""(alias → [rows, ...], time limit in milliseconds or None) → alias → [rows, ...]."""


class BatchExecutor:
    """Runs the batches of one batching queue."""

    def __init__(
        self,
        name: str,
        run: RunModel,
        signature: Signature,
        parameters: BatchingParameters,
        metrics: Metrics,
        pool_name: str,
        clock: Clock,
    ) -> None:
        """Create the executor of a queue.

        Args:
          name: the name of the signature, for the log.
          run: runs the model.
          signature: describes the inputs.
          parameters: the allowed sizes and the padding of batches.
          metrics: records batches.
          pool_name: the name of the threads, for metrics.
          clock: returns seconds, as `time.monotonic` does.
        """
        self._name = name
        self._run_model = run
        self._signature = signature
        self._parameters = parameters
        self._metrics = metrics
        self._pool_name = pool_name
        self._clock = clock

    def __call__(self, batch: Batch) -> None:
        """Run a batch and pass its outputs or an error to each task."""
        now = self._clock()
        slices = [task_slice for task_slice in batch.slices if self._is_pending(task_slice, now)]
        if not slices:
            return
        single_slices = [[task_slice] for task_slice in slices]
        inputs = [task_slice.inputs for task_slice in slices]
        if len(slices) > 1 and not merge.have_same_types(inputs):
            groups = single_slices
        else:
            groups = [slices]
        for group in groups:
            try:
                self._run(group, now)
            except InvalidInput as error:
                if len(group) == 1:
                    _fail(group, error)
                    continue
                # The error does not tell which request of the batch is invalid. Run each request
                # alone, so that only the invalid requests fail.
                for single in single_slices:
                    self._run_single(single)
            except TpuserveError as error:
                _fail(group, error)
            except Exception as error:
                logger.exception("signature %s failed", self._name)
                _fail(group, ModelExecutionError(f"the model failed: {error}"))

    def _run_single(self, single: list[TaskSlice]) -> None:
        try:
            self._run(single, self._clock())
        except TpuserveError as error:
            _fail(single, error)

    def _is_pending(self, task_slice: TaskSlice, now: float) -> bool:
        task = task_slice.task
        self._metrics.queued(self._pool_name, (now - task.enqueued) * 1e6)
        if task.deadline_exceeded(now):
            task.fail_deadline()
        return not task.is_done

    def _run(self, slices: list[TaskSlice], now: float) -> None:
        sizes = [task_slice.size for task_slice in slices]
        size = sum(sizes)
        inputs = [task_slice.inputs for task_slice in slices]
        merged = merge.concat_and_pad(inputs, size, self._signature, self._parameters)
        run_size = self._parameters.padded_size(size)
        self._metrics.batch_run(run_size, run_size - size)
        outputs = self._run_model(merged, _time_limit_ms(slices, now))
        parts = list(merge.split_outputs(outputs, sizes, run_size))
        for task_slice, part in zip(slices, parts, strict=True):
            task_slice.succeed(part)


def _time_limit_ms(slices: list[TaskSlice], now: float) -> float | None:
    """Return the time until the latest deadline of a batch, in milliseconds; None for no limit."""
    deadlines = [task_slice.task.deadline for task_slice in slices]
    latest = max((deadline for deadline in deadlines if deadline is not None), default=None)
    return None if latest is None or None in deadlines else (latest - now) * 1000


def _fail(slices: list[TaskSlice], error: TpuserveError) -> None:
    for task_slice in slices:
        task_slice.task.fail(error)
