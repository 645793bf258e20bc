"""Metric types: counters, histograms and gauges, each with its own lock."""

import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from server.metrics.family import Family, Labels

# The largest number of series of a metric. Further label values are counted in one common series.
# Clients choose the model names in requests, and could fill the memory with series without this
# limit.
MAX_SERIES = 2000
_OTHER_VALUES = "(others)"


class Collector(Protocol):
    """A metric with all its series, one per set of label values."""

    @property
    def name(self) -> str:
        """The metric's name in the registry, such as "/tensorflow/serving/request_count"."""

    def snapshot(self) -> Family:
        """Return the present values of all series."""


class Counter:
    """A metric that only grows, with one number per set of label values."""

    def __init__(self, name: str, labels: Labels = ()) -> None:
        """Create a counter with its name and the names of its labels."""
        self.name = name
        self._labels = labels
        self._values: dict[Labels, int] = {}
        self._lock = threading.Lock()

    def add(self, values: Labels = (), amount: int = 1) -> None:
        """Add an amount to the series with these label values, given in the labels' order."""
        with self._lock:
            current = self._values.get(values)
            if current is None:
                values = _limit_series(self._values, values)
                current = self._values.get(values, 0)
            self._values[values] = current + amount

    @property
    def first_value(self) -> int:
        """The value of the first series in the order of label values; 0 if there is no series."""
        with self._lock:
            return self._values[min(self._values)] if self._values else 0

    def snapshot(self) -> Family:
        """Return the present values of all series."""
        with self._lock:
            return Family(self.name, "counter", self._labels, dict(self._values))


class Histogram:
    """A metric that counts amounts in buckets, with one set of buckets per set of label values."""

    def __init__(self, name: str, labels: Labels, bounds: Sequence[float]) -> None:
        """Create a histogram.

        Args:
          name: the metric's name in the registry.
          labels: the names of the labels.
          bounds: the increasing upper bounds of the buckets; a last bucket without bound is added.
        """
        self.name = name
        self._labels = labels
        self._bounds = tuple(bounds)
        self._series: dict[Labels, _Series] = {}
        self._lock = threading.Lock()

    def add(self, values: Labels, amount: float) -> None:
        """Record an amount in the series with these label values, given in the labels' order."""
        bucket = bisect_left(self._bounds, amount)
        with self._lock:
            one_series = self._series.get(values)
            if one_series is None:
                values = _limit_series(self._series, values)
                one_series = self._series.setdefault(values, _Series([0] * (len(self._bounds) + 1)))
            one_series.counts[bucket] += 1
            one_series.sum += amount

    def snapshot(self) -> Family:
        """Return the present values of all series."""
        with self._lock:
            values = {
                values: (*one_series.counts, one_series.sum)
                for values, one_series in self._series.items()
            }
        return Family(self.name, "histogram", self._labels, values, self._bounds)


class Gauge:
    """A metric that is computed at each export, with one number per set of label values."""

    def __init__(
        self, name: str, labels: Labels, read: Callable[[], Mapping[Labels, float]]
    ) -> None:
        """Create a gauge.

        Args:
          name: the metric's name in the registry.
          labels: the names of the labels.
          read: returns the present numbers: label values → number.
        """
        self.name = name
        self._labels = labels
        self._read = read

    def snapshot(self) -> Family:
        """Return the present values of all series."""
        return Family(self.name, "gauge", self._labels, dict(self._read()))


@dataclass
class _Series:
    counts: list[int]
    sum: float = 0


def _limit_series(series: Mapping[Labels, object], values: Labels) -> Labels:
    """Return the label values under which to count a new series.

    These are the values themselves or, if the metric has MAX_SERIES series already, the values of
    the one series for all further label values.
    """
    return values if len(series) < MAX_SERIES else (_OTHER_VALUES,) * len(values)
