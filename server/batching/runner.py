"""What runs the requests of a version in batches."""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path

from server.admission import nonblocking
from server.batching import merge
from server.batching.batch_executor import Execution, Run
from server.batching.policy import MakePolicy
from server.batching.scheduler import Clock, Queue, Scheduler
from server.batching.tasks import Task
from server.batching.timeout_policy import TimedPolicy
from server.config import batching_parameters as files
from server.config.batching_parameters import PER_MODEL_FILE, BatchingParameters
from server.metrics import Metrics
from server.servables.multi_signature import SupportsMultiRun
from server.servables.servable import Array, InferenceRunner, Model
from tpuserve.errors import TpuserveError
from tpuserve.saved_model import signature as signatures
from tpuserve.saved_model.signature import Signature


class BatchingRunner:
    """Runs requests of one version together with others of the same signature and outputs."""

    def __init__(
        self,
        model: Model,
        parameters: BatchingParameters,
        make_policy: MakePolicy,
        scheduler: Scheduler,
        metrics: Metrics,
        pool_name: str,
    ) -> None:
        """Takes the model, and the scheduler that it shares with others."""
        self._model = model
        self._parameters = parameters
        self._make_policy = make_policy
        self._scheduler = scheduler
        self._metrics = metrics
        self._pool_name = pool_name

    def run(
        self,
        signature_name: str,
        inputs: Mapping[str, Array],
        output_names: Sequence[str] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> dict[str, Array]:
        """The outputs for some inputs, by alias; blocks until their batch has run.

        A signature without inputs has nothing to batch, and is run as it is.

        Args:
          inputs: alias → [rows, ...], one number of rows for all.
          timeout_ms: how long it may take, the wait for a batch included; None for any time.

        Raises:
          InvalidTensor: inputs of different numbers of rows.
          BatchTooLarge, QueueFull: as of `Policy.add`.
          UnbatchableTensor: inputs or outputs that cannot be in one batch.
          DeadlineExceeded: the time is up.
          TpuserveError: whatever the model raises.
          WouldWait: it must wait for a batch, in a thread that may not.
        """
        signature = signatures.find_signature(self._model.signatures, signature_name)
        if not inputs:
            return self._model.run(signature_name, inputs, output_names, timeout_ms=timeout_ms)
        wanted = None if output_names is None else tuple(sorted(output_names))

        def run(fed: Mapping[str, Array], time_ms: float | None) -> Mapping[str, Array]:
            return self._model.run(signature_name, fed, wanted, timeout_ms=time_ms)

        make = partial(self._queue, signature_name, run, signature)
        return self._wait((signature_name, wanted), make, inputs, timeout_ms)

    def run_multi(
        self,
        wanted: Mapping[str, Sequence[str]],
        inputs: Mapping[str, Array],
        *,
        timeout_ms: float | None = None,
    ) -> dict[str, dict[str, Array]]:
        """The outputs of several signatures for the same inputs; errors as of `run`.

        In batches of the requests that ask for the same outputs of the same signatures; of a
        model that cannot compute several signatures in one run, in those of each signature.

        Args:
          wanted: signature → the outputs wanted of it.
          inputs, timeout_ms: as of `run`.

        Returns:
          Signature → alias → array.
        """
        model = self._model
        if not isinstance(model, SupportsMultiRun):
            return {
                name: self.run(name, inputs, outputs, timeout_ms=timeout_ms)
                for name, outputs in wanted.items()
            }
        chosen = {name: tuple(sorted(wanted[name])) for name in sorted(wanted)}
        # One name for each output, as those of one signature have.
        places = [(name, alias) for name, outputs in chosen.items() for alias in outputs]

        def run(fed: Mapping[str, Array], time_ms: float | None) -> Mapping[str, Array]:
            found = model.run_multi(chosen, fed, timeout_ms=time_ms)
            return {str(i): found[name][alias] for i, (name, alias) in enumerate(places)}

        signature = signatures.find_signature(model.signatures, next(iter(chosen)))
        make = partial(self._queue, " and ".join(chosen), run, signature)
        flat = self._wait((tuple(places),), make, inputs, timeout_ms)
        answer: dict[str, dict[str, Array]] = {name: {} for name in wanted}
        for i, (name, alias) in enumerate(places):
            answer[name][alias] = flat[str(i)]
        return answer

    def _wait(
        self,
        key: tuple[Hashable, ...],
        make_queue: Callable[[], Queue],
        inputs: Mapping[str, Array],
        timeout_ms: float | None,
    ) -> dict[str, Array]:
        scheduler = self._scheduler
        size = merge.count_rows(inputs)
        now = scheduler.clock()
        task = Task(inputs, size, now, None if timeout_ms is None else now + timeout_ms / 1000)
        try:
            taken = scheduler.begin(
                (id(self), *key), make_queue, task, nonblocking.blocking_allowed()
            )
        except TpuserveError:
            self._metrics.batched_request(size)
            raise
        self._metrics.batched_request(size)
        if taken is None:
            return task.wait(scheduler.clock())
        run, batch = taken
        try:
            run(batch)
        finally:
            scheduler.end()
        return task.wait(now)

    def _queue(self, name: str, run: Run, signature: Signature) -> Queue:
        execution = Execution(
            name,
            run,
            signature,
            self._parameters,
            self._metrics,
            self._pool_name,
            self._scheduler.clock,
        )
        return Queue(self._make_policy(self._parameters), execution)


class BatchingRunners:
    """Makes the runners of all versions, which share the threads that run batches."""

    def __init__(
        self,
        parameters: BatchingParameters,
        *,
        metrics: Metrics | None = None,
        per_model: bool = False,
        make_policy: MakePolicy = TimedPolicy,
        clock: Clock = time.monotonic,
    ) -> None:
        """Takes how to batch.

        Args:
          metrics: where batches are counted; None for nowhere that anybody sees.
          per_model: whether each version brings its own parameters, but for the threads; one
            that brings none is then not batched.
          make_policy: what forms batches, and when.
          clock: seconds, as of `time.monotonic`.
        """
        self._parameters = parameters
        self._metrics = Metrics() if metrics is None else metrics
        self._per_model = per_model
        self._make_policy = make_policy
        self._scheduler = Scheduler(
            parameters.num_batch_threads, parameters.thread_pool_name, clock
        )
        self._metrics.watch_queue(parameters.thread_pool_name, lambda: self._scheduler.waiting)

    def wrap(self, model: Model, directory: Path, name: str = "") -> InferenceRunner:
        """What runs the requests of a version: the model itself where it is not batched.

        Raises:
          InvalidConfig: the version's own parameters are wrong.
        """
        found = self._parameters
        if self._per_model:
            path = directory / PER_MODEL_FILE
            if not path.exists():
                return model
            found = files.read_batching_parameters(path)
        return BatchingRunner(
            model,
            found,
            self._make_policy,
            self._scheduler,
            self._metrics,
            self._parameters.thread_pool_name,
        )

    def close(self, timeout_seconds: float = 1) -> None:
        """Runs what waits, and ends the threads; arguments as of `Scheduler.close`."""
        self._scheduler.close(timeout_seconds)
