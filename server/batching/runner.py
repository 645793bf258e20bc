"""What runs the requests of a version in batches."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from server.batching import joining
from server.batching import parameters as files
from server.batching.execution import Execution
from server.batching.parameters import PER_MODEL_FILE, BatchingParameters
from server.batching.policy import MakePolicy
from server.batching.scheduler import Clock, Queue, Scheduler
from server.batching.tasks import Task
from server.batching.timed_policy import TimedPolicy
from server.metrics import Metrics
from server.servable import Array, Model, Runner
from tpuserve import signature as signatures


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
        """
        signatures.find(self._model.signatures, signature_name)
        if not inputs:
            return self._model.run(signature_name, inputs, output_names, timeout_ms=timeout_ms)
        size = joining.count_rows(inputs)
        self._metrics.batched_request(size)
        wanted = None if output_names is None else tuple(sorted(output_names))
        now = self._scheduler.clock()
        task = Task(inputs, size, now, None if timeout_ms is None else now + timeout_ms / 1000)
        self._scheduler.submit(
            (id(self), signature_name, wanted), partial(self._queue, signature_name, wanted), task
        )
        return task.wait(self._scheduler.clock())

    def _queue(self, signature_name: str, wanted: tuple[str, ...] | None) -> Queue:
        execution = Execution(
            self._model,
            signature_name,
            wanted,
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

    def wrap(self, model: Model, directory: Path, name: str = "") -> Runner:
        """What runs the requests of a version: the model itself where it is not batched.

        Raises:
          InvalidConfig: the version's own parameters are wrong.
        """
        found = self._parameters
        if self._per_model:
            path = directory / PER_MODEL_FILE
            if not path.exists():
                return model
            found = files.read(path)
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
