"""Creates for each model version the batching runner, which runs requests in batches."""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias
from weakref import WeakValueDictionary

from server.batching.batch_executor import BatchingContext
from server.batching.policy import ContinuousPolicy, MakePolicy, TimeoutPolicy
from server.batching.runner import BatchingRunner
from server.batching.scheduler import Clock, Scheduler
from server.batching.statistics import BatchingStatistics
from server.config import batching_parameters
from server.config.batching_parameters import CONTINUOUS, PER_MODEL_FILE, BatchingParameters
from server.config.model_config import XLA_ENGINE
from server.metrics import Metrics
from server.metrics.collectors import Labels
from server.servables.direct_runner import DirectRunner
from server.servables.servable import InferenceRunner, Model, metagraph_of
from tpuserve.tags import TPU

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
      is_optional: whether only requests are batched that gain by it: a model of which no signature
        is batched has no batching runner, and neither has a TPU metagraph, which is compiled for
        each size of a batch. A request that cannot share a batch runs alone.
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
        is_optional: bool = False,
        find_unbatched: FindUnbatched = lambda model, directory, parameters: {},
        clock: Clock = time.monotonic,
    ) -> None:
        self._parameters = parameters
        self._metrics = Metrics() if metrics is None else metrics
        self._per_model = per_model
        self._make_policy = make_policy
        self._is_optional = is_optional
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
        if self._is_optional and TPU in getattr(model.choice, "tags", ()):
            _log_choice(name, [], "a TPU metagraph is compiled for each size of a batch")
            return DirectRunner(model)
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
            self._is_optional,
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
        if self._is_optional:
            batched = [
                signature_name
                for signature_name, signature in model.signatures.items()
                if signature.inputs and signature_name not in unbatched
            ]
            reasons = [
                f"{signature_name}: {reason}" for signature_name, reason in unbatched.items()
            ]
            _log_choice(name, batched, "; ".join(reasons))
            if not batched:
                return DirectRunner(model)
        else:
            for signature_name, reason in unbatched.items():
                logger.warning(
                    "%s: signature %s is served without batching: %s",
                    *(directory, signature_name, reason),
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


def _log_choice(name: str, batched: Sequence[str], reasons: str) -> None:
    """Say which signatures of a version are batched, and why the others are not."""
    if batched:
        others = f", others without ({reasons})" if reasons else ""
        logger.info("%s: requests for %s run in batches%s", name, ", ".join(batched), others)
    else:
        logger.info("%s: requests run without batches (%s)", name, reasons or "no inputs")


def _model_and_version(name: str) -> tuple[str, str]:
    model, _, version = name.rpartition("/")
    return model, version
