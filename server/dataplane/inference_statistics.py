"""Counts and times the runs of each model version, for Triton's statistics API."""

import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from server.metrics.timeline import Timeline
from server.servables.servable import Array, Servable

# The statistics of a model version distinguish at most this many different numbers of rows per run.
# Clients choose how many rows a request has, and could fill the memory without this limit.
_MAX_SIZES = 256


@dataclass
class SizeStatistics:
    """Statistics of a model version's successful runs with a certain number of rows (examples).

    Attributes:
      decode_ns: the total duration of decoding the inputs of these runs, in nanoseconds.
      run_ns: the total duration of these runs, in nanoseconds.
      encode_ns: the total duration of encoding the responses, in nanoseconds.
    """

    num_runs: int = 0
    decode_ns: int = 0
    run_ns: int = 0
    encode_ns: int = 0


@dataclass
class InferenceStatistics:
    """The numbers and durations of a model version's runs since the version was loaded.

    All durations are totals in nanoseconds.

    Attributes:
      success_ns: the duration of the successful requests, from the end of decoding to the end of
        the run. It includes the time in batching queues.
      last_ms: when the run of the last successful request ended, in milliseconds since 1970; 0 if
        no request was successful.
      sizes: number of rows of a run → the statistics of all runs with this number of rows, for at
        most `_MAX_SIZES` numbers of rows. Runs with further numbers of rows are left out.
    """

    num_successes: int = 0
    success_ns: int = 0
    num_failures: int = 0
    failure_ns: int = 0
    num_rows: int = 0
    last_ms: int = 0
    num_runs: int = 0
    decode_ns: int = 0
    encode_ns: int = 0
    sizes: dict[int, SizeStatistics] = field(default_factory=dict)

    def add_runs(self, rows: int, count: int, run_ns: int) -> None:
        """Add successful runs.

        Args:
          run_ns: the total duration of these runs, in nanoseconds.
        """
        self.num_runs += count
        size = self._find_size(rows)
        size.num_runs += count
        size.run_ns += run_ns

    def add_stages(self, rows: int, decode_ns: int, encode_ns: int) -> None:
        """Add durations of decoding and encoding requests with this number of rows."""
        self.decode_ns += decode_ns
        self.encode_ns += encode_ns
        size = self._find_size(rows)
        size.decode_ns += decode_ns
        size.encode_ns += encode_ns

    def copy(self) -> "InferenceStatistics":
        """Return a copy that later runs do not change."""
        return replace(self, sizes={rows: replace(size) for rows, size in self.sizes.items()})

    def _find_size(self, rows: int) -> SizeStatistics:
        """Return the object that counts the runs with a certain number of rows (examples)."""
        size = self.sizes.get(rows)
        if size is None:
            size = SizeStatistics()
            if len(self.sizes) < _MAX_SIZES:
                self.sizes[rows] = size
        return size


class VersionRecorder:
    """Records the runs of a model version. Thread-safe."""

    __slots__ = ("_lock", "_statistics")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._statistics = InferenceStatistics()

    def record_success(self, inputs: Mapping[str, Array], timeline: Timeline) -> None:
        """Record a request that has run successfully.

        The response is not encoded yet. So this method sets the callback `timeline.on_end`, which
        later records the durations of decoding and encoding.

        Args:
          inputs: the inputs of the run: alias → array of any dtype. The size of the first
            dimension of the first input is the number of rows (examples).
        """
        elapsed_ns = timeline.ran_ns - timeline.decoded_ns
        statistics = self._statistics
        with self._lock:
            statistics.num_successes += 1
            statistics.success_ns += elapsed_ns
            statistics.last_ms = time.time_ns() // 1_000_000
            if timeline.is_batched:
                statistics.num_rows += count_rows(inputs)
            else:
                statistics.num_rows += timeline.run_rows
                statistics.add_runs(timeline.run_rows, 1, elapsed_ns)
        timeline.on_end = self._record_end

    def record_failure(self, started_ns: int) -> None:
        """Record a request whose run has failed.

        Args:
          started_ns: when the run began, in nanoseconds of `time.perf_counter_ns`.
        """
        elapsed_ns = time.perf_counter_ns() - started_ns
        with self._lock:
            self._statistics.num_failures += 1
            self._statistics.failure_ns += elapsed_ns

    def snapshot(self) -> InferenceStatistics:
        """Return a copy of the statistics of the model version."""
        with self._lock:
            return self._statistics.copy()

    def _record_end(self, timeline: Timeline) -> None:
        with self._lock:
            self._statistics.add_stages(timeline.run_rows, timeline.decode_ns, timeline.encode_ns)


class VersionRecorders:
    """The recorders of all model versions. Thread-safe.

    The recorder of a version is freed when the version is unloaded.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_servable: weakref.WeakKeyDictionary[Servable, VersionRecorder] = (
            weakref.WeakKeyDictionary()
        )

    def find(self, servable: Servable) -> VersionRecorder:
        """Return the recorder of a model version; create the recorder if there is none."""
        recorder = self._by_servable.get(servable)
        if recorder is None:
            with self._lock:
                recorder = self._by_servable.setdefault(servable, VersionRecorder())
        return recorder


def count_rows(inputs: Mapping[str, Array]) -> int:
    """Return the number of rows (examples) of a request, for the statistics and metrics."""
    first = next(iter(inputs.values()), None)
    return 1 if first is None or not first.ndim else len(first)
