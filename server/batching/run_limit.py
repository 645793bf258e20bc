"""Limits of the number of batches of a model that run at the same time."""

import logging
from dataclasses import dataclass
from typing import Protocol

# A measurement covers at least _MIN_RUNS runs and lasts at least _MIN_SECONDS.
_MIN_RUNS = 32
_MIN_SECONDS = 0.2
# The limit changes if the new limit gives at least this many times the rows per second of the old
# limit: a smaller gain is within the noise of a measurement.
_MIN_GAIN = 1.05
# The pause between two experiments. It begins with _FIRST_PAUSE_SECONDS, doubles after each
# experiment without a gain up to _MAX_PAUSE_SECONDS, and begins anew when the limit or the load has
# changed.
_FIRST_PAUSE_SECONDS = 1.0
_MAX_PAUSE_SECONDS = 64.0
# The load has changed if the rows per run are this many times more or less than at the last
# experiment.
_LOAD_CHANGE = 1.5

logger = logging.getLogger(__name__)


class RunLimit(Protocol):
    """Says how many batches of a version may run at the same time.

    Not thread-safe: the scheduler calls all methods under its lock.
    """

    @property
    def limit(self) -> int:
        """How many batches may run at the same time; at least 1."""

    @property
    def max_limit(self) -> int:
        """The largest value that `limit` ever has."""

    @property
    def inline_limit(self) -> int:
        """How many batches may run at the same time if a request's thread runs one of them."""

    def run_ended(self, rows: int, now: float, has_waiting: bool) -> None:
        """Record the end of a run.

        Args:
          rows: the number of rows of the batch.
          now: the time in seconds of the scheduler's clock.
          has_waiting: whether other tasks wait at this moment.
        """


@dataclass(frozen=True)
class FixedRunLimit:
    """A limit that never changes."""

    limit: int

    @property
    def max_limit(self) -> int:
        """The limit itself, which never changes."""
        return self.limit

    @property
    def inline_limit(self) -> int:
        """The limit itself: a request's thread may run any of the batches."""
        return self.limit

    def run_ended(self, rows: int, now: float, has_waiting: bool) -> None:
        """Ignore the end of a run."""


@dataclass
class _Measurement:
    """Counts the runs since the beginning of a measurement."""

    began: float
    runs: int = 0
    rows: int = 0
    saturated_runs: int = 0

    @property
    def is_saturated(self) -> bool:
        """Whether tasks waited at the ends of most runs, so that the limit mattered."""
        return 2 * self.saturated_runs > self.runs

    @property
    def rows_per_run(self) -> float:
        return self.rows / self.runs

    def rows_per_second(self, now: float) -> float:
        return self.rows / (now - self.began)

    def is_complete(self, now: float) -> bool:
        return self.runs >= _MIN_RUNS and now - self.began >= _MIN_SECONDS


class MeasuredRunLimit:
    """A limit that follows from measurements of the rows per second (hill climbing).

    The limit begins with 1. While tasks wait, an experiment compares the limit with a neighbour:
    the rows per second are measured with the limit, with the neighbour, and with the limit again.
    If the neighbour gives at least 5 % more than both measurements with the limit, the neighbour
    becomes the limit, and the next experiment tries the following number in the same direction.
    Otherwise the next experiment tries the other direction, after a pause. The second measurement
    with the limit shows whether the load changed during the experiment.

    While no tasks wait, the limit does not matter and stays.

    Attributes:
      inline_limit: 1, so that a request's thread runs a batch only on an idle server. Under load
        the threads of the frontends must be free to receive the requests of the next batches.
    """

    inline_limit = 1

    def __init__(self, max_limit: int, name: str = "") -> None:
        """Create a limit of 1.

        Args:
          max_limit: the largest value of `limit`.
          name: the name of the version, for the log.
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
        # The rows per second that the present experiment has measured so far: with the limit from
        # before the experiment, and with the neighbour of this limit. Empty while no experiment
        # runs.
        self._rates: list[float] = []

    def run_ended(self, rows: int, now: float, has_waiting: bool) -> None:
        """Record the end of a run, and change the limit if this run completes an experiment."""
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
            # Begin the next experiment at once, if the limit can change further in this direction.
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
