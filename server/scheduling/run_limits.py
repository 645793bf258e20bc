"""The limits on the requests of each model, from the configuration and the batching runners."""

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from server.config.model_config import QueueLimits

_PROCESSORS = os.cpu_count() or 1
# The default of max_concurrent_runs. More runs than processors do not increase the throughput of a
# model that computes, and each further run delays the runs of other models.
DEFAULT_CONCURRENT_RUNS = max(2, _PROCESSORS)


@dataclass(frozen=True)
class RunLimits:
    """The limits on the requests of a model.

    Attributes:
      max_concurrent_runs: the largest number of requests that run at the same time; at least 1.
      max_queue: the largest number of requests that wait; None for no limit.
      max_queue_seconds: the longest wait of a request; None for no limit.
      only_waits: whether the thread of a running request only waits: for the request's batch, which
        other threads run, or for another process. Such a request does not count in the limit of
        its frontend's threads.
    """

    max_concurrent_runs: int = DEFAULT_CONCURRENT_RUNS
    max_queue: int | None = None
    max_queue_seconds: float | None = None
    only_waits: bool = False


class LimitTable:
    """The limits of all configured models. Thread-safe."""

    def __init__(
        self, defaults: QueueLimits | None = None, max_waiting_for_batch: int = 128
    ) -> None:
        """Create a table without models.

        Args:
          defaults: the limits of a model whose configuration leaves them out; None for no limits.
          max_waiting_for_batch: `RunLimits.max_concurrent_runs` of a model whose requests are
            batched. Most requests need no thread while they wait for their batch.
        """
        self._defaults = QueueLimits() if defaults is None else defaults
        self._max_waiting_for_batch = max_waiting_for_batch
        self._configured: Mapping[str, QueueLimits] = {}
        self._batched: frozenset[str] = frozenset()
        self._limits: Mapping[str, RunLimits] = {}
        self._lock = threading.Lock()

    def configure(self, models: Mapping[str, QueueLimits]) -> None:
        """Replace the configured models: model name → limits."""
        with self._lock:
            self._configured = dict(models)
            self._update()

    def set_batched(self, model: str, is_batched: bool) -> None:
        """Set whether the newest version of a model runs its requests in batches."""
        with self._lock:
            others = self._batched - {model}
            self._batched = others | {model} if is_batched else others
            self._update()

    def find(self, model: str) -> RunLimits | None:
        """Return the limits of a model; None if no such model is configured."""
        return self._limits.get(model)

    def _update(self) -> None:
        self._limits = {
            model: self._resolve(limits, model in self._batched)
            for model, limits in self._configured.items()
        }

    def _resolve(self, configured: QueueLimits, is_batched: bool) -> RunLimits:
        defaults = self._defaults
        runs = _first(configured.max_concurrent_runs, defaults.max_concurrent_runs)
        queue_ms = _first(configured.max_queue_ms, defaults.max_queue_ms)
        if is_batched:
            # Let enough requests in to fill the batches. The number of threads that run batches
            # limits how many batches run.
            runs = self._max_waiting_for_batch
        return RunLimits(
            max_concurrent_runs=runs or DEFAULT_CONCURRENT_RUNS,
            max_queue=_first(configured.max_queue, defaults.max_queue) or None,
            max_queue_seconds=queue_ms / 1000 if queue_ms else None,
            only_waits=is_batched,
        )


def _first(configured: int | None, default: int | None) -> int:
    return configured if configured is not None else default or 0
