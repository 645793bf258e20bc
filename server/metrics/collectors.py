"""The types of metrics: counters, histograms, gauges, and recent error messages."""

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from server.metrics.family import EVENTS, Family, Labels

# The largest number of time series of a metric. Further label values are counted in one common
# series. Without this limit, clients could fill the memory with series, because they choose the
# model names in requests.
MAX_SERIES = 2000
# The largest number of characters of a label value. Longer values are counted in the common series
# "(others)", because the model name in a gRPC request can be megabytes long.
MAX_LABEL = 500
_OTHER_VALUES = "(others)"
# The largest number of different errors that `RecentErrors` keeps, and the largest number of
# characters of each message.
_MAX_ERRORS, _MAX_MESSAGE = 30, 500


class Collector(Protocol):
    """A metric with all its time series, one per combination of label values."""

    @property
    def name(self) -> str:
        """The metric's name in the registry, such as "/tensorflow/serving/request_count"."""

    def snapshot(self) -> Family:
        """Return the metric with the present values of all its series."""


class Counter:
    """A metric that only grows. It has one number per combination of label values."""

    def __init__(
        self,
        name: str,
        labels: Labels = (),
        help: str = "",
        is_known: Callable[[str], bool] = lambda value: True,
    ) -> None:
        """Create a counter without time series.

        Args:
          name: the name in the registry of metrics.
          labels: the names of the labels.
          help: the description.
          is_known: returns whether a value of the first label is known to the server, such as the
            name of a configured model. Values that clients make up get half of the series at most.
        """
        self.name = name
        self._is_known = is_known
        self._labels = labels
        self._help = help
        self._values: dict[Labels, int] = {}
        self._lock = threading.Lock()

    def add(self, values: Labels = (), amount: int = 1) -> None:
        """Add an amount to the time series with these label values.

        `values` has one value for each label, in the order of the labels.
        """
        with self._lock:
            current = self._values.get(values)
            if current is None:
                is_known = not values or self._is_known(values[0])
                max_series = MAX_SERIES if is_known else MAX_SERIES // 2
                values = _limit_series(self._values, values, max_series)
                current = self._values.get(values, 0)
            self._values[values] = current + amount

    @property
    def first_value(self) -> int:
        """The value of the first series, in the order of label values; 0 if there is no series.

        It is meant for counters without labels, which have a single series.
        """
        with self._lock:
            return self._values[min(self._values)] if self._values else 0

    def snapshot(self) -> Family:
        """Return the metric with the present values of all its series."""
        with self._lock:
            return Family(self.name, "counter", self._labels, dict(self._values), help=self._help)


class Histogram:
    """A metric that counts amounts in buckets.

    It has one set of buckets per combination of label values.
    """

    def __init__(self, name: str, labels: Labels, bounds: Sequence[float], help: str = "") -> None:
        """Create a histogram.

        Args:
          name: the metric's name in the registry.
          labels: the names of the labels.
          bounds: the increasing upper bounds of the buckets. One more bucket, without bound,
            follows.
          help: the description.
        """
        self.name = name
        self._help = help
        self._labels = labels
        self._bounds = tuple(bounds)
        self._series: dict[Labels, _Series] = {}
        self._lock = threading.Lock()

    def add(self, values: Labels, amount: float) -> None:
        """Record an amount in the time series with these label values.

        `values` has one value for each label, in the order of the labels.
        """
        bucket = bisect_left(self._bounds, amount)
        with self._lock:
            one_series = self._series.get(values)
            if one_series is None:
                values = _limit_series(self._series, values)
                one_series = self._series.setdefault(values, _Series([0] * (len(self._bounds) + 1)))
            one_series.counts[bucket] += 1
            one_series.sum += amount

    def snapshot(self) -> Family:
        """Return the metric with the present values of all its series."""
        with self._lock:
            values = {
                values: (*one_series.counts, one_series.sum)
                for values, one_series in self._series.items()
            }
        return Family(self.name, "histogram", self._labels, values, self._bounds, self._help)


class Gauge:
    """A metric that is computed whenever the metrics are read.

    It has one number per combination of label values.
    """

    def __init__(
        self,
        name: str,
        labels: Labels,
        read: Callable[[], Mapping[Labels, float]],
        help: str = "",
    ) -> None:
        """Create a gauge.

        Args:
          name: the metric's name in the registry.
          labels: the names of the labels.
          read: computes the metric: returns label values → number.
          help: the description.
        """
        self.name = name
        self._help = help
        self._labels = labels
        self._read = read

    def snapshot(self) -> Family:
        """Return the metric with the present values of all its series."""
        return Family(self.name, "gauge", self._labels, dict(self._read()), help=self._help)


class RecentErrors:
    """The messages of the latest errors, for the web page for operators.

    Equal errors share an entry, which has the number of their occurrences.
    """

    def __init__(self, name: str) -> None:
        """Create a record without errors, under a name in the registry of metrics."""
        self.name = name
        # Error → (the number of its occurrences, the time of the last one), ordered by this time,
        # so that the first entry is the oldest.
        self._errors: dict[_Error, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def add(self, model: str, entrypoint: str, status: str, message: str) -> None:
        """Record an error of a request.

        Long model names and messages are cut, because clients choose them.

        Args:
          model: the name of the model; empty for a request that names no model.
          entrypoint: "REST" or "GRPC".
          status: the name of the canonical code, such as "NOT_FOUND".
          message: the message of the error.
        """
        error = (_cut(model), entrypoint, status, _cut(message))
        now_ms = time.time_ns() // 1_000_000
        with self._lock:
            count, _ = self._errors.pop(error, (0, 0))
            self._errors[error] = count + 1, now_ms
            if len(self._errors) > _MAX_ERRORS:
                del self._errors[next(iter(self._errors))]

    def snapshot(self) -> Family:
        """Return the entries as a metric with one series per entry.

        The labels are the time of the last occurrence, in milliseconds since 1970, and the model,
        entrypoint, status and message of the error. The value is the number of occurrences.
        """
        labels = ("time_ms", "model_name", "entrypoint", "status", "message")
        with self._lock:
            values: dict[Labels, float | tuple[float, ...]] = {
                (str(time_ms), *error): count for error, (count, time_ms) in self._errors.items()
            }
        return Family(self.name, EVENTS, labels, values)


_Error: TypeAlias = tuple[str, str, str, str]


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_MESSAGE else text[: _MAX_MESSAGE - 1] + "…"


@dataclass
class _Series:
    counts: list[int]
    sum: float = 0


def _limit_series(
    series: Mapping[Labels, object], values: Labels, max_series: int = MAX_SERIES
) -> Labels:
    """Return `values`, or the label values of a common series if no new series is allowed.

    The common series has "(others)" as the value of each label. It is used if the metric already
    has `max_series` series, or if a label value has more than MAX_LABEL characters, so that clients
    cannot fill the memory.

    Args:
      series: the series that the metric already has.
      values: the label values of a series that the metric does not have yet.
      max_series: the number of series from which no new series is allowed.
    """
    has_room = len(series) < max_series and all(len(value) <= MAX_LABEL for value in values)
    return values if has_room else (_OTHER_VALUES,) * len(values)
