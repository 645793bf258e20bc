"""Counts the runs of each model version and their time, for Triton's statistics API."""

import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace

from server.servables.servable import Array, Servable


@dataclass
class InferenceStatistics:
    """The numbers of runs of a model version, and their time, since the version was loaded.

    Attributes:
      num_successes: the number of requests that have run successfully.
      success_ns: the time of these requests in nanoseconds, including the time in batching queues.
      num_failures: the number of requests that have failed.
      failure_ns: the time of the failed requests in nanoseconds.
      num_rows: the number of rows (examples) of the requests that have run successfully.
      last_ms: when the last run ended, in milliseconds since 1970; 0 if there was no run.
    """

    num_successes: int = 0
    success_ns: int = 0
    num_failures: int = 0
    failure_ns: int = 0
    num_rows: int = 0
    last_ms: int = 0


class InferenceRecorder:
    """Records the runs of all model versions. Thread-safe.

    The statistics of a version are freed when the version is unloaded.
    """

    def __init__(self) -> None:
        """Create a recorder that has no runs yet."""
        self._lock = threading.Lock()
        self._by_servable: weakref.WeakKeyDictionary[Servable, InferenceStatistics] = (
            weakref.WeakKeyDictionary()
        )

    def record_success(
        self, servable: Servable, inputs: Mapping[str, Array], started_ns: int
    ) -> None:
        """Record a successful run of a version.

        Args:
          servable: the model version.
          inputs: the inputs of the run: alias → array. The size of the first dimension of the first
            input is the number of rows (examples).
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
        """Record a failed run of a version; the arguments are those of `record_success`."""
        elapsed_ns = time.perf_counter_ns() - started_ns
        with self._lock:
            statistics = self._by_servable.setdefault(servable, InferenceStatistics())
            statistics.num_failures += 1
            statistics.failure_ns += elapsed_ns

    def snapshot(self, servable: Servable) -> InferenceStatistics:
        """Return a copy of the statistics of a model version."""
        with self._lock:
            return replace(self._by_servable.get(servable, InferenceStatistics()))


def count_rows(inputs: Mapping[str, Array]) -> int:
    """Return the number of rows (examples) of a request, for the statistics and metrics.

    Args:
      inputs: Input alias → array, [rows, ...].

    Returns:
      The size of the first dimension of the first input. A request without inputs, or whose first
      input is a scalar, counts as one row.
    """
    first = next(iter(inputs.values()), None)
    return 1 if first is None or not first.ndim else len(first)
