"""Counts the runs of each version, and their time, for Triton's statistics."""

import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace

from server.servables.servable import Array, Servable


@dataclass
class InferenceStatistics:
    """The runs of a version since it was loaded.

    Attributes:
      num_successes: the number of requests whose run succeeded.
      success_ns: the time of these runs in nanoseconds, including the time in batching queues.
      num_failures: the number of requests whose run failed.
      failure_ns: the time of these runs in nanoseconds.
      num_rows: the number of rows of the requests whose run succeeded.
      last_ms: when the last run ended, in milliseconds since 1970; 0 for no run.
    """

    num_successes: int = 0
    success_ns: int = 0
    num_failures: int = 0
    failure_ns: int = 0
    num_rows: int = 0
    last_ms: int = 0


class InferenceRecorder:
    """Records the runs of versions. Thread-safe. Forgets a version once it is unloaded."""

    def __init__(self) -> None:
        """Create a recorder without runs."""
        self._lock = threading.Lock()
        self._by_servable: weakref.WeakKeyDictionary[Servable, InferenceStatistics] = (
            weakref.WeakKeyDictionary()
        )

    def record_success(
        self, servable: Servable, inputs: Mapping[str, Array], started_ns: int
    ) -> None:
        """Record a run that succeeded.

        Args:
          servable: the version.
          inputs: alias → array. The first dimension of the first input counts the rows.
          started_ns: when the run began, in nanoseconds of `time.perf_counter_ns`.
        """
        elapsed_ns = time.perf_counter_ns() - started_ns
        num_rows = count_rows(inputs)
        with self._lock:
            statistics = self._by_servable.setdefault(servable, InferenceStatistics())
            statistics.num_successes += 1
            statistics.success_ns += elapsed_ns
            statistics.num_rows += num_rows
            statistics.last_ms = time.time_ns() // 1_000_000

    def record_failure(self, servable: Servable, started_ns: int) -> None:
        """Record a run that failed; arguments as in `record_success`."""
        elapsed_ns = time.perf_counter_ns() - started_ns
        with self._lock:
            statistics = self._by_servable.setdefault(servable, InferenceStatistics())
            statistics.num_failures += 1
            statistics.failure_ns += elapsed_ns

    def snapshot(self, servable: Servable) -> InferenceStatistics:
        """Return a copy of the statistics of a version."""
        with self._lock:
            return replace(self._by_servable.get(servable, InferenceStatistics()))


def count_rows(inputs: Mapping[str, Array]) -> int:
    """Return the number of rows of a request, by which statistics and metrics count.

    Args:
      inputs: Input alias → array, [rows, ...].

    Returns:
      The size of the first dimension of the first input. A request without inputs, or whose first
      input is a scalar, counts as one row.
    """
    first = next(iter(inputs.values()), None)
    return 1 if first is None or not first.ndim else len(first)
