"""The batching runner: runs the requests of a model version in batches."""

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial

from server.admission import cancellation as cancellations
from server.admission import nonblocking
from server.admission.cancellation import Cancellation
from server.batching import merge
from server.batching.batch_executor import BatchExecutor, BatchingContext, RunModel
from server.batching.policy import MakePolicy
from server.batching.run_slots import RunSlots
from server.batching.scheduler import BatchingQueue, Scheduler
from server.batching.tasks import BatchTask
from server.metrics.timeline import Timeline
from server.servables.multi_signature import SupportsMultiRun
from server.servables.pending import Pending
from server.servables.servable import Array, Model
from tpuserve.errors import Cancelled, DeadlineExceeded, TpuserveError
from tpuserve.saved_model import signature as signatures


class BatchingRunner:
    """Runs the requests of a model version in batches, with the interface of the model itself.

    All requests of a batch ask for the same outputs of the same signature. A row is one example of
    a request: one index of the first dimension of all inputs.
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
        """Create the runner of a model version.

        Args:
          model: the loaded model, which runs the batches.
          make_policy: creates the batching policy of each batching queue.
          scheduler: holds the batching queues, and the threads that run batches.
          context: the objects that all batching queues of the version share.
          unbatched: for the signatures that must not be batched: signature name → the reason.
          close: ends the scheduler; becomes the method `close` of the runner.
        """
        self._model = model
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

    def run(
        self,
        signature_name: str,
        inputs: Mapping[str, Array],
        output_names: Sequence[str] | None = None,
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> dict[str, Array]:
        """Compute the outputs of a signature, and wait until the request's batch has run.

        A request without inputs runs alone, and so does a request for a signature that must not be
        batched. At most `num_batch_threads` of them run at the same time.

        Args:
          signature_name: the name of the signature.
          inputs: alias → [rows, ...], with the same number of rows for every alias.
          output_names: the aliases of the outputs to compute; None for all outputs.
          timeout_ms: the time limit in milliseconds, including the wait for a batch; None for no
            limit.
          cancellation: cancels the request, which then leaves its queue. None if the request cannot
            be cancelled.

        Returns:
          Alias → [rows, ...].

        Raises:
          InvalidTensor: the inputs have different numbers of rows.
          BatchTooLarge: the request has more rows than any batch may have.
          QueueFull: the queue has no room at the moment.
          UnbatchableTensor: an output of the model does not have one row for each row of the
            inputs.
          DeadlineExceeded: the time limit passed.
          Cancelled: the request was cancelled before its batch had run. When no request of the
            batch waits for the outputs, the run is stopped too, if the runtime can stop a run.
          TpuserveError: the model raised an error.
          WouldBlock: the request must wait for a batch or, if it must run alone, until fewer such
            requests run, and the calling thread must not block.
        """
        outputs = self._start(
            signature_name,
            inputs,
            output_names,
            timeout_ms,
            cancellation,
            None,
            blocking_allowed=nonblocking.blocking_allowed(),
        )
        return outputs.finish() if isinstance(outputs, Pending) else outputs

    def start(
        self,
        signature_name: str,
        inputs: Mapping[str, Array],
        output_names: Sequence[str] | None = None,
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
        timeline: Timeline | None = None,
    ) -> dict[str, Array] | Pending[dict[str, Array]]:
        """Begin to compute the outputs of a signature; the arguments and errors are those of `run`.

        If a `timeline` is passed, it records when the request's batch began and ended.

        Returns:
          The outputs (alias → [rows, ...]) if the request ran alone in the calling thread.
          Otherwise a Pending (a future), whose `finish` waits for the batch, at most until the time
          limit, and then returns the outputs or raises the batch's error.
        """
        return self._start(signature_name, inputs, output_names, timeout_ms, cancellation, timeline)

    def _start(
        self,
        signature_name: str,
        inputs: Mapping[str, Array],
        output_names: Sequence[str] | None,
        timeout_ms: float | None,
        cancellation: Cancellation | None,
        timeline: Timeline | None,
        blocking_allowed: bool = True,
    ) -> dict[str, Array] | Pending[dict[str, Array]]:
        signatures.find_signature(self._model.signatures, signature_name)
        is_unbatched = signature_name in self._unbatched
        if is_unbatched or not inputs:
            nonblocking.check_running_allowed()
            if is_unbatched:
                self._context.statistics.count_unbatched()
            with self._slots.occupy(timeout_ms, cancellation) as time_ms:
                return self._model.run(
                    signature_name,
                    inputs,
                    output_names,
                    timeout_ms=time_ms,
                    cancellation=cancellation,
                )
        aliases = None if output_names is None else tuple(sorted(output_names))

        def run(
            batch_inputs: Mapping[str, Array], time_ms: float | None, unneeded: Cancellation
        ) -> Mapping[str, Array]:
            return self._model.run(
                signature_name, batch_inputs, aliases, timeout_ms=time_ms, cancellation=unneeded
            )

        make_queue = partial(self._make_queue, signature_name, run)
        return self._start_in_batch(
            (signature_name, aliases),
            make_queue,
            inputs,
            timeout_ms,
            cancellation,
            timeline,
            blocking_allowed,
        )

    def run_multi(
        self,
        output_names: Mapping[str, Sequence[str]],
        inputs: Mapping[str, Array],
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> dict[str, dict[str, Array]]:
        """Compute the outputs of several signatures for the same inputs.

        The errors are those of `run`.

        Requests for the same outputs of the same signatures can share a batch. If the model cannot
        compute several signatures in one run, or if one of the signatures must not be batched, the
        method calls `run` for each signature.

        Args:
          output_names: signature name → the aliases of the outputs to compute.
          inputs: alias → [rows, ...].
          timeout_ms: the time limit in milliseconds; None for no limit.
          cancellation: cancels the request; None if the request cannot be cancelled.

        Returns:
          Signature name → alias → [rows, ...].
        """
        outputs = self._start_multi(
            output_names, inputs, timeout_ms, cancellation, None, nonblocking.blocking_allowed()
        )
        return outputs.finish() if isinstance(outputs, Pending) else outputs

    def start_multi(
        self,
        output_names: Mapping[str, Sequence[str]],
        inputs: Mapping[str, Array],
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
        timeline: Timeline | None = None,
    ) -> dict[str, dict[str, Array]] | Pending[dict[str, dict[str, Array]]]:
        """Begin to compute the outputs of several signatures.

        The arguments are those of `run_multi`.

        If a `timeline` is passed, it records when the request's batch began and ended.

        Returns:
          The outputs (signature name → alias → [rows, ...]) if they were computed in the calling
          thread. Otherwise a Pending (a future), whose `finish` waits for the batch and returns the
          outputs.
        """
        return self._start_multi(output_names, inputs, timeout_ms, cancellation, timeline)

    def _start_multi(
        self,
        output_names: Mapping[str, Sequence[str]],
        inputs: Mapping[str, Array],
        timeout_ms: float | None,
        cancellation: Cancellation | None,
        timeline: Timeline | None,
        blocking_allowed: bool = True,
    ) -> dict[str, dict[str, Array]] | Pending[dict[str, dict[str, Array]]]:
        model = self._model
        if not isinstance(model, SupportsMultiRun) or not self._unbatched.keys().isdisjoint(
            output_names
        ):
            return {
                name: self.run(
                    name, inputs, outputs, timeout_ms=timeout_ms, cancellation=cancellation
                )
                for name, outputs in output_names.items()
            }
        sorted_names = {name: tuple(sorted(output_names[name])) for name in sorted(output_names)}
        # A batch returns a single mapping of outputs, but outputs of different signatures may have
        # the same alias. So the key of an output in this mapping is its index in the list of all
        # pairs (signature name, alias).
        flat_names = [(name, alias) for name, aliases in sorted_names.items() for alias in aliases]

        def run(
            batch_inputs: Mapping[str, Array], time_ms: float | None, unneeded: Cancellation
        ) -> Mapping[str, Array]:
            outputs = model.run_multi(
                sorted_names, batch_inputs, timeout_ms=time_ms, cancellation=unneeded
            )
            return {str(i): outputs[name][alias] for i, (name, alias) in enumerate(flat_names)}

        for name in sorted_names:
            signatures.find_signature(model.signatures, name)
        make_queue = partial(self._make_queue, " and ".join(sorted_names), run)
        started = self._start_in_batch(
            (tuple(flat_names),),
            make_queue,
            inputs,
            timeout_ms,
            cancellation,
            timeline,
            blocking_allowed,
        )

        def finish() -> dict[str, dict[str, Array]]:
            flat_outputs = started.finish() if isinstance(started, Pending) else started
            outputs: dict[str, dict[str, Array]] = {name: {} for name in output_names}
            for i, (name, alias) in enumerate(flat_names):
                outputs[name][alias] = flat_outputs[str(i)]
            return outputs

        return started.then(finish) if isinstance(started, Pending) else finish()

    def _start_in_batch(
        self,
        key: tuple[Hashable, ...],
        make_queue: Callable[[], BatchingQueue],
        inputs: Mapping[str, Array],
        timeout_ms: float | None,
        cancellation: Cancellation | None,
        timeline: Timeline | None,
        blocking_allowed: bool,
    ) -> dict[str, Array] | Pending[dict[str, Array]]:
        if cancellation is not None:
            cancellation.raise_if_cancelled()
        scheduler = self._scheduler
        size = merge.count_rows(inputs)
        queue_key = id(self), *key
        now = scheduler.clock()
        deadline = None if timeout_ms is None else now + timeout_ms / 1000
        task = BatchTask(inputs, size, now, deadline, timeline)
        try:
            ready = scheduler.try_run_inline(
                queue_key, make_queue, task, blocking_allowed, nonblocking.running_allowed()
            )
        except TpuserveError:
            self._context.metrics.batched_request(size)
            raise
        self._context.metrics.batched_request(size)
        if ready is None:
            return self._pend(queue_key, task, cancellation)
        run, batch = ready

        def fail() -> None:
            task.fail(Cancelled(cancellations.MESSAGE))

        if cancellation is not None:
            cancellation.add_callback(fail)
        try:
            run(batch)
        finally:
            scheduler.release_inline_slot()
            if cancellation is not None:
                cancellation.remove_callback(fail)
        return task.wait(now)

    def _pend(
        self, key: Hashable, task: BatchTask, cancellation: Cancellation | None
    ) -> Pending[dict[str, Array]]:
        """Return the Pending (a future) that waits for the outputs of an enqueued task.

        Args:
          key: the key of the batching queue that holds the task.
          task: the waiting request.
          cancellation: removes the task from the queue when the request is cancelled; None if the
            request cannot be cancelled.
        """
        deadlines = self._context.deadlines

        def withdraw() -> None:
            task.fail(Cancelled(cancellations.MESSAGE))
            self._scheduler.remove(key, task)

        def finish() -> dict[str, Array]:
            try:
                return task.wait(self._scheduler.clock())
            except DeadlineExceeded:
                self._scheduler.remove(key, task)
                raise
            finally:
                deadlines.remove(task)
                self._scheduler.task_answered()
                if cancellation is not None:
                    cancellation.remove_callback(withdraw)

        if cancellation is not None:
            cancellation.add_callback(withdraw)
        deadlines.add(task)
        return Pending(task, finish)

    def _make_queue(self, name: str, run: RunModel) -> BatchingQueue:
        return BatchingQueue(
            self._make_policy(self._context.parameters), BatchExecutor(name, run, self._context)
        )
