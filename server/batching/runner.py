"""The batching runner: runs the requests of a model version in batches."""

import os
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from server.admission import nonblocking
from server.batching import merge
from server.batching.batch_executor import BatchExecutor, BatchingContext, RunModel
from server.batching.policy import MakePolicy
from server.batching.scheduler import BatchingQueue, Scheduler
from server.batching.tasks import AloneReason, BatchTask
from server.request import RequestContext
from server.servables import pending
from server.servables.direct_runner import DirectRunner, SupportsMultiRun
from server.servables.pending import Pending
from server.servables.servable import Array, Model
from tpuserve.saved_model import signature as signatures


class RunSlots:
    """A fixed number of slots; each request that runs alone occupies one. Thread-safe.

    The queues of models do not limit these requests: they assume that a request of a batched model
    only waits for its batch.
    """

    def __init__(self, count: int) -> None:
        self._count = self._free = count
        self._condition = threading.Condition()

    @contextmanager
    def occupy(self, context: RequestContext) -> Iterator[None]:
        """Wait for a free slot, and occupy the slot in the context of the `with` statement."""
        with self._condition:
            if not self._free:
                if not nonblocking.blocking_allowed():
                    raise nonblocking.WouldBlock
                self._wait(context)
            self._free -= 1
        try:
            context.check()
            yield
        finally:
            with self._condition:
                self._free += 1
                self._condition.notify()

    def _wait(self, context: RequestContext) -> None:
        """Wait until a slot is free; the caller holds the condition."""
        cancellation = context.cancellation
        cancellation.add_callback(self._wake)
        try:
            self._condition.wait_for(lambda: self._free or cancellation.is_cancelled)
            cancellation.raise_if_cancelled()
        except BaseException:
            # Pass on the wake-up that this request may have got in the place of another.
            self._condition.notify()
            raise
        finally:
            cancellation.remove_callback(self._wake)

    def _wake(self) -> None:
        with self._condition:
            self._condition.notify_all()


class BatchingRunner:
    """Runs the requests of a model version in batches.

    All requests of a batch ask for the same outputs of the same signature. A row is one example of
    a request: one index of the first dimension of all inputs.

    Args:
      unbatched: for the signatures that must not be batched: signature name → the reason.
    """

    def __init__(
        self,
        model: Model,
        make_policy: MakePolicy,
        scheduler: Scheduler,
        context: BatchingContext,
        unbatched: Mapping[str, str],
        close: Callable[[], None],
    ) -> None:
        self._model = model
        self._direct = DirectRunner(model)
        self._make_policy = make_policy
        self._scheduler = scheduler
        self._context = context
        self._unbatched = unbatched
        # The slots for requests that run without a batch.
        self._slots = RunSlots(context.parameters.num_batch_threads or os.cpu_count() or 1)
        self.close = close

    @property
    def statistics(self) -> Mapping[str, object]:
        """The statistics of the batches so far; see `BatchingStatistics.snapshot`."""
        return self._context.statistics.snapshot()

    @property
    def batch_runs(self) -> Mapping[int, tuple[int, int]]:
        """The runs so far: rows of a batch → (number of successful runs, total nanoseconds)."""
        return self._context.statistics.runs()

    def start(
        self,
        context: RequestContext,
        signature_name: str,
        inputs: Mapping[str, Array],
        output_names: Sequence[str] | None = None,
    ) -> Mapping[str, Array] | Pending[Mapping[str, Array]]:
        """Begin to compute the outputs of a signature; see `InferenceRunner.start`.

        A request without inputs runs alone, and so does a request for a signature that must not be
        batched. With optional batching, so does one whose rows do not fit in a batch.

        Args:
          inputs: alias → [rows, ...], with the same number of rows for every alias.

        Returns:
          Alias → [rows, ...]. A Pending, unless the request ran alone in the calling thread.

        Raises:
          DeadlineExceeded, Cancelled: nobody waits for the answer. When that holds for all requests
            of a batch, its run is stopped too, if the runtime can stop a run.
          WouldBlock: the request must run alone, and the calling thread must not wait or run it.
        """
        signatures.find_signature(self._model.signatures, signature_name)
        is_unbatched = signature_name in self._unbatched
        if is_unbatched or not self._may_share(inputs):
            nonblocking.check_running_allowed()
            with self._slots.occupy(context):
                if is_unbatched:
                    self._context.statistics.count_unbatched()
                return self._direct.start(context, signature_name, inputs, output_names)
        is_alone = self._context.is_optional and nonblocking.running_allowed()
        if is_alone and self._scheduler.try_begin_alone():
            with self._counted_alone(len(next(iter(inputs.values())))):
                return self._direct.start(context, signature_name, inputs, output_names)
        aliases = None if output_names is None else tuple(sorted(output_names))

        def run(batch: RequestContext, batch_inputs: Mapping[str, Array]) -> Mapping[str, Array]:
            return self._direct.start(batch, signature_name, batch_inputs, aliases)

        make_queue = partial(self._make_queue, signature_name, run)
        return self._start_in_batch(context, (signature_name, aliases), make_queue, inputs)

    def start_multi(
        self,
        context: RequestContext,
        output_names: Mapping[str, Sequence[str]],
        inputs: Mapping[str, Array],
    ) -> Mapping[str, Mapping[str, Array]] | Pending[Mapping[str, Mapping[str, Array]]]:
        """Begin to compute the outputs of several signatures; see `InferenceRunner.start_multi`.

        Requests for the same outputs of the same signatures can share a batch.
        """
        model = self._model
        is_batched = self._unbatched.keys().isdisjoint(output_names) and self._may_share(inputs)
        if not isinstance(model, SupportsMultiRun) or not is_batched:
            if not nonblocking.blocking_allowed():
                raise nonblocking.WouldBlock
            started_each = {
                name: self.start(context, name, inputs, outputs)
                for name, outputs in output_names.items()
            }
            return {name: pending.wait(started) for name, started in started_each.items()}
        sorted_names = {name: tuple(sorted(output_names[name])) for name in sorted(output_names)}
        # A batch returns a single mapping of outputs, but outputs of different signatures may have
        # the same alias.
        flat_names = [(name, alias) for name, aliases in sorted_names.items() for alias in aliases]

        def run(batch: RequestContext, batch_inputs: Mapping[str, Array]) -> Mapping[str, Array]:
            outputs = self._direct.start_multi(batch, sorted_names, batch_inputs)
            return {str(i): outputs[name][alias] for i, (name, alias) in enumerate(flat_names)}

        for name in sorted_names:
            signatures.find_signature(model.signatures, name)
        make_queue = partial(self._make_queue, " and ".join(sorted_names), run)
        started = self._start_in_batch(context, (tuple(flat_names),), make_queue, inputs)

        def split(flat_outputs: Mapping[str, Array]) -> Mapping[str, Mapping[str, Array]]:
            outputs: dict[str, dict[str, Array]] = {name: {} for name in output_names}
            for i, (name, alias) in enumerate(flat_names):
                outputs[name][alias] = flat_outputs[str(i)]
            return outputs

        return pending.transform(started, split)

    @contextmanager
    def _counted_alone(self, rows: int) -> Iterator[None]:
        """Count the run of a request for which `try_begin_alone` has returned True."""
        statistics, begin_ns = self._context.statistics, time.perf_counter_ns()
        try:
            yield
            statistics.run_succeeded(rows, time.perf_counter_ns() - begin_ns)
        finally:
            self._scheduler.release_inline_slot()
            now = self._context.clock()
            statistics.batch_ran(rows, 0, (0.0,), AloneReason.IDLE, now)

    def _may_share(self, inputs: Mapping[str, Array]) -> bool:
        if not self._context.is_optional:
            return bool(inputs)
        return merge.can_share(inputs, self._context.parameters.max_batch_size)

    def _start_in_batch(
        self,
        context: RequestContext,
        key: tuple[Hashable, ...],
        make_queue: Callable[[], BatchingQueue],
        inputs: Mapping[str, Array],
    ) -> Mapping[str, Array] | Pending[Mapping[str, Array]]:
        context.check()
        scheduler = self._scheduler
        size = merge.count_rows(inputs)
        queue_key = id(self), *key
        task = BatchTask(inputs, size, scheduler.clock(), context)
        try:
            ready = scheduler.try_run_inline(
                queue_key, make_queue, task, nonblocking.running_allowed()
            )
        finally:
            self._context.metrics.batched_request(size)
        if ready is None:
            return self._pend(queue_key, task)
        run, batch = ready

        def fail() -> None:
            task.fail(context.cancellation.error)

        context.cancellation.add_callback(fail)
        try:
            run(batch)
        finally:
            scheduler.release_inline_slot()
            context.cancellation.remove_callback(fail)
        return task.wait()

    def _pend(self, key: Hashable, task: BatchTask) -> Pending[Mapping[str, Array]]:
        """Return the Pending of an enqueued task, which leaves its queue if it is cancelled."""
        cancellation = task.context.cancellation

        def withdraw() -> None:
            task.fail(cancellation.error)
            self._scheduler.remove(key, task)

        def finish() -> dict[str, Array]:
            try:
                return task.wait()
            finally:
                self._scheduler.task_answered()
                cancellation.remove_callback(withdraw)

        cancellation.add_callback(withdraw)
        return Pending(task, finish)

    def _make_queue(self, name: str, run: RunModel) -> BatchingQueue:
        return BatchingQueue(
            self._make_policy(self._context.parameters), BatchExecutor(name, run, self._context)
        )
