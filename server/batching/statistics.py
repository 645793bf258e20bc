"""Statistics of the batches of one model version, for the server's operators."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from server.batching.tasks import AloneReason
from server.metrics import Metrics

# The shortest interval between two log lines with statistics, in seconds.
_LOG_SECONDS = 60.0

logger = logging.getLogger(__name__)


class BatchingStatistics:
    """Counts batches, their sizes and waiting times, and why requests ran alone. Thread-safe.

    Args:
      metrics: also counts the requests that ran alone, for the metrics endpoint; None for new
        metrics that nobody reads.
    """

    def __init__(self, name: str, policy: str, metrics: Metrics | None = None) -> None:
        self._name = name
        self._metrics = Metrics() if metrics is None else metrics
        self._policy = policy
        self._lock = threading.Lock()
        self._sizes: Counter[int] = Counter()
        # Number of rows of a batch → (the number of successful runs, their nanoseconds in total).
        self._runs: dict[int, tuple[int, int]] = {}
        self._padding_rows = 0
        self._num_requests = 0
        self._waited_seconds = 0.0
        self._longest_wait_seconds = 0.0
        self._alone: Counter[AloneReason] = Counter()
        self._unbatched: dict[str, str] = {}
        # The totals (requests, batches, seconds in the queue) when the last line was logged, and
        # the time of this line. Each line reports only the requests and batches since the last
        # line.
        self._logged = 0, 0, 0.0
        self._last_log: float | None = None
        self.read_runs: Callable[[], tuple[int, int]] = lambda: (0, 0)

    def batch_ran(
        self, rows: int, padding: int, waits: Sequence[float], reason: AloneReason, now: float
    ) -> None:
        """Record the run of a batch.

        Args:
          waits: for each request of the batch its time in the queue, in seconds.
          now: the present time, in seconds of the scheduler's clock.
        """
        if len(waits) == 1:
            self._count_alone(reason)
        with self._lock:
            self._sizes[rows] += 1
            self._padding_rows += padding
            self._num_requests += len(waits)
            self._waited_seconds += sum(waits)
            self._longest_wait_seconds = max(self._longest_wait_seconds, *waits)
            if len(waits) == 1:
                self._alone[reason] += 1
            if self._last_log is None:
                self._last_log = now
            if now - self._last_log < _LOG_SECONDS:
                return
            line = self._log_line(now - self._last_log)
            self._last_log = now
        logger.info("%s: %s", self._name, line)

    def run_succeeded(self, rows: int, run_ns: int) -> None:
        """Record that the run of a batch has succeeded."""
        with self._lock:
            count, total_ns = self._runs.get(rows, (0, 0))
            self._runs[rows] = count + 1, total_ns + run_ns

    def runs(self) -> dict[int, tuple[int, int]]:
        """Return the number and duration of the batches' runs so far, by the size of the batch.

        Returns:
          Number of rows (examples) of a batch → (number of successful runs, their nanoseconds in
          total).
        """
        with self._lock:
            return dict(self._runs)

    def count_unbatched(self) -> None:
        """Count a request for a signature that is served without batching."""
        self._count_alone(AloneReason.NOT_BATCHABLE)
        with self._lock:
            self._alone[AloneReason.NOT_BATCHABLE] += 1

    def set_unbatched(self, reasons: Mapping[str, str]) -> None:
        """Set which signatures are served without batching, for `snapshot`.

        `reasons` is signature name → why the signature must not be batched.
        """
        self._unbatched = dict(reasons)

    def snapshot(self) -> dict[str, Any]:
        """Return all statistics so far as a dictionary that JSON can represent."""
        running, limit = self.read_runs()
        with self._lock:
            batches = self._sizes.total()
            return {
                "policy": self._policy,
                "requests": self._num_requests,
                "batches": batches,
                "rows": sum(size * count for size, count in self._sizes.items()),
                "padding_rows": self._padding_rows,
                "batch_sizes": self._histogram(),
                "mean_queue_us": round(1e6 * self._waited_seconds / max(1, self._num_requests)),
                "max_queue_us": round(1e6 * self._longest_wait_seconds),
                "runs_in_flight": running,
                "max_runs_in_flight": limit,
                "alone": {reason.value: self._alone[reason] for reason in AloneReason},
                "unbatched_signatures": dict(sorted(self._unbatched.items())),
            }

    def _count_alone(self, reason: AloneReason) -> None:
        model, _, version = self._name.rpartition("/")
        self._metrics.ran_alone(model, version, reason.value)

    def _histogram(self) -> dict[str, int]:
        """Return how many batches had how many rows (examples)."""
        counts: Counter[int] = Counter()
        for size, count in self._sizes.items():
            counts[max(size - 1, 0).bit_length()] += count
        return {_format_range(power): counts[power] for power in sorted(counts)}

    def _log_line(self, seconds: float) -> str:
        batches = self._sizes.total()
        before_requests, before_batches, before_waited = self._logged
        self._logged = self._num_requests, batches, self._waited_seconds
        requests, batches = self._num_requests - before_requests, batches - before_batches
        waited_ms = 1000 * (self._waited_seconds - before_waited) / max(1, requests)
        _, limit = self.read_runs()
        return (
            f"in the last {seconds:.0f} s {requests} requests ran in {batches} batches, "
            f"{requests / max(1, batches):.1f} per batch, after {waited_ms:.1f} ms in the queue on "
            f"average; up to {limit} batches run at the same time"
        )


def _format_range(power: int) -> str:
    """Format the batch sizes from 2^(power-1) + 1 to 2^power, such as "5-8" for power 3."""
    last = 1 << power
    first = (last >> 1) + 1
    return str(last) if first >= last else f"{first}-{last}"
