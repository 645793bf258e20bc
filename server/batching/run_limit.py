"""Classes that decide how many batches of a model version may run at the same time."""

import logging
from dataclasses import dataclass
from typing import Protocol

# A measurement of the throughput covers at least _MIN_RUNS batches and lasts at least _MIN_SECONDS,
# so that chance has little influence on it.
_MIN_RUNS = 32
_MIN_SECONDS = 0.2
# The limit on the batches that run at the same time changes if the new limit gives at least 1.05
# times the rows (examples) per second of the old limit. A smaller gain is within the noise of a
# measurement.
_MIN_GAIN = 1.05
# The pause between two experiments, each of which tries another limit on the batches that run at
# the same time. The pause is _FIRST_PAUSE_SECONDS at first, and doubles after each experiment
# without a gain, up to _MAX_PAUSE_SECONDS. When the limit or the load has changed, the pause is
# _FIRST_PAUSE_SECONDS again.
_FIRST_PAUSE_SECONDS = 1.0
_MAX_PAUSE_SECONDS = 64.0
# An experiment tries another limit on the batches that run at the same time. If the load has
# changed since the last experiment, the next experiment begins at once. The load counts as changed
# if the mean number of rows (examples) per batch has grown or shrunk by a factor of at least 1.5.
_LOAD_CHANGE = 1.5

logger = logging.getLogger(__name__)


class RunLimit(Protocol):
    """Decides how many batches of a model version may run at the same time.

    Not thread-safe: the scheduler calls all methods under its lock.
    """

    @property
    def limit(self) -> int:
        """The number of batches that may run at the same time now; at least 1."""

    @property
    def max_limit(self) -> int:
        """The largest value that `limit` can reach."""

    @property
    def inline_limit(self) -> int:
        """A batch may run inline only while fewer batches than this number run.

        Inline means in the thread that received the request, and not in a thread of the pool.
        """

    def run_ended(self, rows: int, now: float, has_waiting: bool) -> None:
        """Record that a batch has run.

        Args:
          rows: the number of rows (examples) of the batch.
          now: the time in seconds of the scheduler's clock.
          has_waiting: whether other requests or batches wait to run at this moment.
        """


@dataclass(frozen=True)
class FixedRunLimit:
    """A constant limit on the number of batches that run at the same time."""

    limit: int

    @property
    def max_limit(self) -> int:
        """The largest value of the limit, which is the limit itself."""
        return self.limit

    @property
    def inline_limit(self) -> int:
        """The limit itself: any batch may run inline, in the thread that received the request."""
        return self.limit

    def run_ended(self, rows: int, now: float, has_waiting: bool) -> None:
        """Do nothing, because the limit never changes.

        The arguments are those of `RunLimit.run_ended`.
        """


@dataclass
class _Measurement:
    """Counts the runs and their rows (examples) since `began`, to measure the rows per second."""

    began: float
    runs: int = 0
    rows: int = 0
    saturated_runs: int = 0

    @property
    def is_saturated(self) -> bool:
        """Whether other requests waited at the ends of most runs.

        If False, the limit had no effect, and the measurement says nothing about the limit.
        """
        return 2 * self.saturated_runs > self.runs

    @property
    def rows_per_run(self) -> float:
        return self.rows / self.runs

    def rows_per_second(self, now: float) -> float:
        return self.rows / (now - self.began)

    def is_complete(self, now: float) -> bool:
        return self.runs >= _MIN_RUNS and now - self.began >= _MIN_SECONDS


class MeasuredRunLimit:
    """A limit that maximises the measured rows (examples) per second, by hill climbing.

    The limit begins with 1. While requests wait, an experiment compares the limit with the next
    larger or smaller number, its neighbour: the rows per second are measured with the limit, with
    the neighbour, and with the limit again. If the neighbour gives at least 5 % more rows per
    second than both measurements with the limit, the neighbour becomes the limit, and the next
    experiment tries the following number in the same direction. Otherwise the next experiment tries
    the other direction, after a pause. The limit is measured twice to notice if the load changed
    during the experiment.

    While no requests wait, the limit has no effect and is not changed.

    Attributes:
      inline_limit: 1, so that a batch runs inline, in the thread that received the request, only if
        no other batch runs. Under load the receiving threads must be free to receive the requests
        of the next batches.
    """

    inline_limit = 1

    def __init__(self, max_limit: int, name: str = "") -> None:
        """Create a limit that begins with 1.

        Args:
          max_limit: the largest value that `limit` can reach.
          name: the name of the model version, for the log.
        """
        self.max_limit = max_limit
        self.limit = 1
        self._name = name
        self._base_limit = 1
        self._direction = 1
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self._next_experiment = 0.0
        self._rows_per_run = 0.0
        self._measurement: _Measurement | None = None
        # The results of the present experiment so far, in rows (examples) per second: first with
        # the present limit, then with the limit that the experiment tries. Empty while no
        # experiment runs.
        self._rates: list[float] = []

    def run_ended(self, rows: int, now: float, has_waiting: bool) -> None:
        """Record that a batch has run, and change the limit if this run completes an experiment.

        Args:
          rows: the number of rows (examples) of the batch.
          now: the time in seconds of the scheduler's clock.
          has_waiting: whether other requests or batches wait to run at this moment.
        """
        measurement = self._measurement
        if measurement is None:
            self._measurement = _Measurement(now)
            return
        measurement.runs += 1
        measurement.rows += rows
        measurement.saturated_runs += has_waiting
        if not measurement.is_complete(now):
            return
        self._measurement = _Measurement(now)
        if self._rates:
            self._continue_experiment(measurement, now)
        elif measurement.is_saturated and self.max_limit > 1:
            self._begin_experiment(measurement, now)

    def _begin_experiment(self, measurement: _Measurement, now: float) -> None:
        if self._has_load_changed(measurement):
            self._pause_seconds, self._next_experiment = _FIRST_PAUSE_SECONDS, now
        if now < self._next_experiment:
            return
        self._rows_per_run = measurement.rows_per_run
        if not 1 <= self._base_limit + self._direction <= self.max_limit:
            self._direction = -self._direction
        self._rates = [measurement.rows_per_second(now)]
        self.limit = self._base_limit + self._direction

    def _continue_experiment(self, measurement: _Measurement, now: float) -> None:
        self._rates.append(measurement.rows_per_second(now))
        if len(self._rates) == 2:
            self.limit = self._base_limit
            return
        before, neighbour, after = self._rates
        self._rates = []
        if neighbour >= _MIN_GAIN * max(before, after):
            old_limit = self._base_limit
            self.limit = self._base_limit = old_limit + self._direction
            # If the limit can change further in the direction that gave a gain, begin the next
            # experiment without a pause.
            has_next = 1 <= self.limit + self._direction <= self.max_limit
            self._pause_seconds = _FIRST_PAUSE_SECONDS
            self._next_experiment = now if has_next else now + _FIRST_PAUSE_SECONDS
            self._rows_per_run = 0.0
            logger.info(
                "%s: batches in flight: %d instead of %d, for %.0f instead of %.0f rows/s",
                *(self._name, self.limit, old_limit, neighbour, max(before, after)),
            )
            return
        self._direction = -self._direction
        self._next_experiment = now + self._pause_seconds
        self._pause_seconds = min(2 * self._pause_seconds, _MAX_PAUSE_SECONDS)

    def _has_load_changed(self, measurement: _Measurement) -> bool:
        if not self._rows_per_run:
            return False
        ratio = measurement.rows_per_run / self._rows_per_run
        return not 1 / _LOAD_CHANGE < ratio < _LOAD_CHANGE
