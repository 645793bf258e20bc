"""The batching runner of a version, and the factory of batching runners."""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path

from server.admission import nonblocking
from server.batching import merge
from server.batching.batch_executor import BatchExecutor, RunModel
from server.batching.policy import MakePolicy
from server.batching.scheduler import BatchingQueue, Clock, Scheduler
from server.batching.tasks import BatchTask
from server.batching.timeout_policy import TimeoutPolicy
from server.config import batching_parameters
from server.config.batching_parameters import PER_MODEL_FILE, BatchingParameters
from server.metrics import Metrics
from server.servables.multi_signature import SupportsMultiRun
from server.servables.servable import Array, InferenceRunner, Model
from tpuserve.errors import TpuserveError
from tpuserve.saved_model import signature as signatures
from tpuserve.saved_model.signature import Signature


class BatchingRunner:
    """Runs requests of one version in batches with requests for the same signature and outputs."""

    def __init__(
        self,
        model: Model,
        parameters: BatchingParameters,
        make_policy: MakePolicy,
        scheduler: Scheduler,
        metrics: Metrics,
        pool_name: str,
    ) -> None:
        """Create the runner of a model; all runners of a server share one scheduler."""
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
        """Compute the outputs of a signature; blocks until the request's batch has run.

        A request without inputs runs alone.

        Args:
          signature_name: the name of the signature.
          inputs: alias → [rows, ...], with the same number of rows for every alias.
          output_names: the aliases of the outputs to compute; None for all outputs.
          timeout_ms: the time limit in milliseconds, including the wait for a batch; None for no
            limit.

        Returns:
          Alias → [rows, ...].

        Raises:
          InvalidTensor: the inputs have different numbers of rows.
          BatchTooLarge: the request has more rows than any batch may have.
          QueueFull: the queue has no room at the moment.
          UnbatchableTensor: the inputs or the outputs cannot share a batch.
          DeadlineExceeded: the time limit passed.
          TpuserveError: the model raised an error.
          WouldBlock: the request must wait for a batch, in a thread that may not block.
        """
        signature = signatures.find_signature(self._model.signatures, signature_name)
        if not inputs:
            return self._model.run(signature_name, inputs, output_names, timeout_ms=timeout_ms)
        aliases = None if output_names is None else tuple(sorted(output_names))

        def run(batch_inputs: Mapping[str, Array], time_ms: float | None) -> Mapping[str, Array]:
            return self._model.run(signature_name, batch_inputs, aliases, timeout_ms=time_ms)

        make_queue = partial(self._make_queue, signature_name, run, signature)
        return self._run_in_batch((signature_name, aliases), make_queue, inputs, timeout_ms)

    def run_multi(
        self,
        output_names: Mapping[str, Sequence[str]],
        inputs: Mapping[str, Array],
        *,
        timeout_ms: float | None = None,
    ) -> dict[str, dict[str, Array]]:
        """Compute the outputs of several signatures for the same inputs; errors are those of `run`.

        Requests for the same outputs of the same signatures share a batch. A model that cannot
        compute several signatures in one run gets a batch per signature.

        Args:
          output_names: signature name → the aliases of the outputs to compute.
          inputs: alias → [rows, ...].
          timeout_ms: the time limit in milliseconds; None for no limit.

        Returns:
          Signature name → alias → [rows, ...].
        """
        model = self._model
        if not isinstance(model, SupportsMultiRun):
            return {
                name: self.run(name, inputs, outputs, timeout_ms=timeout_ms)
                for name, outputs in output_names.items()
            }
        sorted_names = {name: tuple(sorted(output_names[name])) for name in sorted(output_names)}
        # A batch has one mapping of outputs, in which outputs of several signatures need different
        # keys. So the key of an output is the index of its signature name and alias in
        # `flat_names`.
        flat_names = [(name, alias) for name, aliases in sorted_names.items() for alias in aliases]

        def run(batch_inputs: Mapping[str, Array], time_ms: float | None) -> Mapping[str, Array]:
            outputs = model.run_multi(sorted_names, batch_inputs, timeout_ms=time_ms)
            return {str(i): outputs[name][alias] for i, (name, alias) in enumerate(flat_names)}

        signature = signatures.find_signature(model.signatures, next(iter(sorted_names)))
        make_queue = partial(self._make_queue, " and ".join(sorted_names), run, signature)
        flat_outputs = self._run_in_batch((tuple(flat_names),), make_queue, inputs, timeout_ms)
        outputs_by_signature: dict[str, dict[str, Array]] = {name: {} for name in output_names}
        for i, (name, alias) in enumerate(flat_names):
            outputs_by_signature[name][alias] = flat_outputs[str(i)]
        return outputs_by_signature

    def _run_in_batch(
        self,
        key: tuple[Hashable, ...],
        make_queue: Callable[[], BatchingQueue],
        inputs: Mapping[str, Array],
        timeout_ms: float | None,
    ) -> dict[str, Array]:
        scheduler = self._scheduler
        size = merge.count_rows(inputs)
        now = scheduler.clock()
        task = BatchTask(inputs, size, now, None if timeout_ms is None else now + timeout_ms / 1000)
        try:
            ready = scheduler.try_run_inline(
                (id(self), *key), make_queue, task, nonblocking.blocking_allowed()
            )
        except TpuserveError:
            self._metrics.batched_request(size)
            raise
        self._metrics.batched_request(size)
        if ready is None:
            return task.wait(scheduler.clock())
        run, batch = ready
        try:
            run(batch)
        finally:
            scheduler.release_inline_slot()
        return task.wait(now)

    def _make_queue(self, name: str, run: RunModel, signature: Signature) -> BatchingQueue:
        executor = BatchExecutor(
            name,
            run,
            signature,
            self._parameters,
            self._metrics,
            self._pool_name,
            self._scheduler.clock,
        )
        return BatchingQueue(self._make_policy(self._parameters), executor)


class BatchingRunnerFactory:
    """Creates the batching runners of all versions, and owns the scheduler that they share."""

    def __init__(
        self,
        parameters: BatchingParameters,
        *,
        metrics: Metrics | None = None,
        per_model: bool = False,
        make_policy: MakePolicy = TimeoutPolicy,
        clock: Clock = time.monotonic,
    ) -> None:
        """Create a factory.

        Args:
          parameters: the batching parameters of the server.
          metrics: records batches; None for metrics of its own.
          per_model: whether each version has its own parameters, except for the threads; a version
            without parameters is then not batched.
          make_policy: creates the policy of a queue.
          clock: returns seconds, as `time.monotonic` does.
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
        """Create the runner of a version; return the model itself if its requests are not batched.

        Args:
          model: the version's model.
          directory: the version's directory, which may hold batching parameters.
          name: the name of the version.

        Raises:
          InvalidConfig: the version's own parameters are invalid.
        """
        parameters = self._parameters
        if self._per_model:
            path = directory / PER_MODEL_FILE
            if not path.exists():
                return model
            parameters = batching_parameters.read_batching_parameters(path)
        return BatchingRunner(
            model,
            parameters,
            self._make_policy,
            self._scheduler,
            self._metrics,
            self._parameters.thread_pool_name,
        )

    def close(self, timeout_seconds: float = 1) -> None:
        """Run the waiting tasks and end the threads; see `Scheduler.close`."""
        self._scheduler.close(timeout_seconds)
