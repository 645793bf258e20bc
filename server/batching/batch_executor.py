"""The batch executor: answers the requests of a batch with one run of the model."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from server.batching import merge
from server.batching.merge import UnevenOutputs
from server.batching.scheduler import Clock
from server.batching.statistics import BatchingStatistics
from server.batching.tasks import AloneReason, Batch, TaskSlice
from server.config.batching_parameters import BatchingParameters
from server.metrics import Metrics
from server.metrics.collectors import Labels
from server.request import RequestContext
from server.servables.servable import Array
from tpuserve.errors import InvalidInput, ModelExecutionError, TpuserveError

logger = logging.getLogger(__name__)


RunModel: TypeAlias = Callable[[RequestContext, Mapping[str, Array]], Mapping[str, Array]]
"""(context of the batch, alias → [rows, ...]) → alias → [rows, ...]."""


@dataclass(frozen=True)
class BatchingContext:
    """The objects that all batching queues of one model version share.

    Attributes:
      parameters: the batching parameters, such as the allowed batch sizes.
      clock: returns seconds, as `time.monotonic` does.
      is_optional: whether a request that does not fit in a batch runs alone, in place of an error.
    """

    parameters: BatchingParameters
    metrics: Metrics
    statistics: BatchingStatistics
    labels: Labels
    pool_name: str
    clock: Clock
    is_optional: bool = False


# The errors of ops, which one of the requests of a batch may have caused.
_REFUSALS = (InvalidInput, ModelExecutionError)


class BatchExecutor:
    """Runs the batches of one batching queue, and passes the outputs to the requests."""

    def __init__(
        self,
        name: str,
        run: RunModel,
        context: BatchingContext,
    ) -> None:
        self._name = name
        self._run_model = run
        self._context = context
        model, version, metagraph = context.labels
        self._labels = model, version, name, metagraph
        self._refusals = (*_REFUSALS, UnevenOutputs) if context.is_optional else _REFUSALS

    def __call__(self, batch: Batch) -> None:
        """Run a batch, and pass to each task its outputs or an error.

        If the inputs of the requests cannot all be concatenated, because their element types or
        shapes differ, the batch is split into groups of requests with equal types and shapes.
        """
        now = self._context.clock()
        slices = [task_slice for task_slice in batch.slices if self._is_pending(task_slice, now)]
        if not slices:
            return
        groups = [slices]
        if len(slices) > 1:
            is_padded = self._context.parameters.pad_variable_length_inputs
            layouts = [merge.layout(task_slice.inputs, is_padded) for task_slice in slices]
            if layouts.count(layouts[0]) < len(layouts):
                groups = merge.group_by_layout(slices, layouts)
                batch.alone_reason = AloneReason.DIFFERENT_SHAPES
        for group in groups:
            self._run_group(group, now, batch.alone_reason)

    def _run_group(self, group: list[TaskSlice], now: float, reason: AloneReason) -> None:
        try:
            self._run(group, now, reason)
        except self._refusals as error:
            if len(group) == 1:
                _fail(group, error)
                return
            # An op refused the batch, and the error does not say which of the requests is the
            # cause. Run each request again by itself, so that only that request fails.
            for task_slice in group:
                if not task_slice.task.is_done:
                    self._run_group([task_slice], self._context.clock(), AloneReason.AFTER_ERROR)
        except TpuserveError as error:
            for task_slice in group:
                # The error of a run that took too long is that of each task's own deadline.
                task_slice.task.check()
            _fail(group, error)
        except Exception as error:
            logger.exception("signature %s failed", self._name)
            _fail(group, ModelExecutionError(f"the model failed: {error}"))

    def _is_pending(self, task_slice: TaskSlice, now: float) -> bool:
        task = task_slice.task
        self._context.metrics.queued(self._context.pool_name, (now - task.enqueued) * 1e6)
        return task.check()

    def _run(self, slices: list[TaskSlice], now: float, reason: AloneReason) -> None:
        context = self._context
        sizes = [task_slice.size for task_slice in slices]
        size = sum(sizes)
        inputs = [task_slice.inputs for task_slice in slices]
        merged = merge.concat_and_pad(inputs, size, context.parameters)
        run_size = context.parameters.padded_size(size)
        running_ns = time.perf_counter_ns()
        for task_slice in slices:
            task_slice.task.context.timeline.begin_run(running_ns, size)
        runs_again = False
        try:
            outputs = self._run_model(_make_context(slices), merged)
        except _REFUSALS:
            # The requests of a refused batch run again one by one, and are counted then.
            runs_again = len(slices) > 1
            raise
        finally:
            if not runs_again:
                context.metrics.batch_run(run_size, run_size - size)
                context.metrics.model_run(self._labels, size)
                waits = [now - task_slice.task.enqueued for task_slice in slices]
                context.statistics.batch_ran(size, run_size - size, waits, reason, now)
        context.statistics.run_succeeded(size, time.perf_counter_ns() - running_ns)
        if context.is_optional and sizes == [run_size]:
            slices[0].succeed(outputs)
            return
        parts = list(merge.split_outputs(outputs, sizes, run_size))
        for task_slice, part in zip(slices, parts, strict=True):
            task_slice.succeed(part)


def _make_context(slices: list[TaskSlice]) -> RequestContext:
    """Return the context of a batch's run, which nobody waits for when no task waits any more."""
    tasks = [task_slice.task for task_slice in slices]
    context = RequestContext(max(task.context.deadline for task in tasks))

    def cancel_if_done() -> None:
        if all(task.is_done for task in tasks):
            context.cancellation.cancel()

    for task in tasks:
        task.add_done_callback(cancel_if_done)
    return context


def _fail(slices: list[TaskSlice], error: TpuserveError) -> None:
    for task_slice in slices:
        task_slice.task.fail(error)
