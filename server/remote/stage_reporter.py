"""Reports to the engine process how long a frontend process decoded and encoded requests."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from server.dataplane.inference_statistics import StageTimes
from server.metrics.timeline import Timeline
from tpuserve.errors import TpuserveError

# The interval between two reports, in seconds. A report for each request would take longer than the
# run of a small model. The statistics in the engine process may lack the requests of one interval.
_INTERVAL_SECONDS = 0.5


class StageReporter:
    """Adds up the durations of decoding inputs and encoding responses, and reports the sums.

    The engine process needs these reports for its statistics: it can measure only how long the
    models run, because the frontend process decodes and encodes. Thread-safe.
    """

    def __init__(self, report: Callable[[Sequence[StageTimes]], object]) -> None:
        """Create a reporter.

        Args:
          report: sends the durations of stages to the engine process, and waits until that process
            has recorded them.
        """
        self._report = report
        # The times that are not reported yet: (model, version, rows of the run) → (nanoseconds of
        # decoding, nanoseconds of encoding).
        self._sums: dict[tuple[str, str, int], tuple[int, int]] = {}
        # True while a timer for the next report runs, and while a report waits for the answer of
        # the engine process. No second timer is started meanwhile, because reports would pile up if
        # the engine process hung.
        self._is_scheduled = False
        self._lock = threading.Lock()

    def add(self, timeline: Timeline) -> None:
        """Add the decoding and encoding times of a request to the next report.

        Args:
          timeline: the times of the request, after its response was encoded.
        """
        key = timeline.model, timeline.version, timeline.run_rows
        with self._lock:
            is_first, self._is_scheduled = not self._is_scheduled, True
            decode_ns, encode_ns = self._sums.get(key, (0, 0))
            self._sums[key] = decode_ns + timeline.decode_ns, encode_ns + timeline.encode_ns
        if is_first:
            self._start_timer()

    def flush(self) -> None:
        """Report the times so far, and wait until the engine process has recorded them."""
        with self._lock:
            sums, self._sums = self._sums, {}
        if not sums:
            return
        # Ignore an error: the engine process has ended, and its statistics are lost.
        with suppress(TpuserveError):
            self._report(
                [
                    StageTimes(model, int(version), rows, decode_ns, encode_ns)
                    for (model, version, rows), (decode_ns, encode_ns) in sums.items()
                ]
            )

    def _start_timer(self) -> None:
        timer = threading.Timer(_INTERVAL_SECONDS, self._report_and_continue)
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError:
            # The system cannot start a thread. Let the next request try again.
            with self._lock:
                self._is_scheduled = False

    def _report_and_continue(self) -> None:
        try:
            self.flush()
        finally:
            with self._lock:
                self._is_scheduled = is_needed = bool(self._sums)
            if is_needed:
                self._start_timer()
