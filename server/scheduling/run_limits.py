"""The limits of each model's running and waiting requests."""

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from server.config.model_config import QueueLimits

_PROCESSORS = os.cpu_count() or 1
# The default of max_concurrent_runs. More running requests than processors do not increase the
# throughput of a model, but delay the requests of other models.
DEFAULT_CONCURRENT_RUNS = max(2, _PROCESSORS)


@dataclass(frozen=True)
class RunLimits:
    """The limits of a model's running and waiting requests.

    Attributes:
      max_concurrent_runs: the largest number of requests that run at the same time; at least 1.
      max_queue: the largest number of requests that wait to run; None for no limit.
      max_queue_seconds: the longest time that a request may wait to run, in seconds; None for no
        limit.
      only_waits: whether a running request only waits, either for its batch (which other threads
        run) or for another process. Such requests do not count towards `RunPool.max_running`.
    """

    max_concurrent_runs: int = DEFAULT_CONCURRENT_RUNS
    max_queue: int | None = None
    max_queue_seconds: float | None = None
    only_waits: bool = False


class LimitTable:
    """The limits of all configured models' running and waiting requests. Thread-safe.

    The limits of a model depend on its configuration, and on whether its requests are batched.

    Args:
      defaults: the limits for models whose configuration does not set them; None for
        `DEFAULT_CONCURRENT_RUNS` and no limits of the waiting requests.
      max_waiting_for_batch: the value of `RunLimits.max_concurrent_runs` for a model whose requests
        are batched.
    """

    def __init__(
        self, defaults: QueueLimits | None = None, max_waiting_for_batch: int = 128
    ) -> None:
        self._defaults = QueueLimits() if defaults is None else defaults
        self._max_waiting_for_batch = max_waiting_for_batch
        self._configured: Mapping[str, QueueLimits] = {}
        self._batched: frozenset[str] = frozenset()
        self._limits: Mapping[str, RunLimits] = {}
        self._lock = threading.Lock()

    def configure(self, models: Mapping[str, QueueLimits]) -> None:
        """Replace all configured models; `models` is model name → limits in the configuration."""
        with self._lock:
            self._configured = dict(models)
            self._update()

    def set_batched(self, model: str, is_batched: bool) -> None:
        """Set whether requests of a model's newest version run in batches; adapt the limits."""
        if is_batched == (model in self._batched):
            return  # Most loads change nothing, and the table may have a thousand models.
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
            # A started request only waits for its batch, so let enough requests start to fill the
            # batches. The number of threads that run batches limits how many batches run.
            runs = self._max_waiting_for_batch
        return RunLimits(
            max_concurrent_runs=runs or DEFAULT_CONCURRENT_RUNS,
            max_queue=_first(configured.max_queue, defaults.max_queue) or None,
            max_queue_seconds=queue_ms / 1000 if queue_ms else None,
            only_waits=is_batched,
        )


def _first(configured: int | None, default: int | None) -> int:
    return configured if configured is not None else default or 0
