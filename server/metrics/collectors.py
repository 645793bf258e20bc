"""Metrics of one name each: what they hold, under a lock of their own."""

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from server.metrics import exposition

Labels: TypeAlias = tuple[str, ...]

# Model names in requests are clients' own: past so many, what they count goes to one series.
MAX_SERIES = 2000
_OTHERS = "(others)"


class Family(Protocol):
    """All series of one name."""

    @property
    def name(self) -> str:
        """As in the registry, "/tensorflow/serving/request_count"."""

    def lines(self) -> Iterable[str]:
        """Its lines of the exposition, the first saying what kind it is."""


class Counter:
    """Numbers that only grow, one per set of label values."""

    def __init__(self, name: str, labels: Labels = ()) -> None:
        """Takes its name and the names of its labels."""
        self.name = name
        self._labels = labels
        self._values: dict[Labels, int] = {}
        self._lock = threading.Lock()

    def add(self, values: Labels = (), amount: int = 1) -> None:
        """Counts up one series, by the values of its labels in their order."""
        with self._lock:
            known = self._values.get(values)
            if known is None:
                values = _bounded(self._values, values)
                known = self._values.get(values, 0)
            self._values[values] = known + amount

    @property
    def first(self) -> int:
        """The value of its first series in the order of labels; 0 if it has none."""
        with self._lock:
            return self._values[min(self._values)] if self._values else 0

    def lines(self) -> Iterable[str]:
        """Its lines of the exposition."""
        with self._lock:
            values = dict(self._values)
        yield exposition.kind(self.name, "counter")
        for each, value in sorted(values.items()):
            yield exposition.sample(self.name, zip(self._labels, each, strict=True), value)


class Histogram:
    """How often which amounts were seen, one set of buckets per set of label values."""

    def __init__(self, name: str, labels: Labels, bounds: Sequence[float]) -> None:
        """Takes the upper bounds of its buckets, increasing; a last one without is added."""
        self.name = name
        self._labels = labels
        self._bounds = tuple(bounds)
        self._cells: dict[Labels, _Cell] = {}
        self._lock = threading.Lock()

    def add(self, values: Labels, amount: float) -> None:
        """Counts one amount in one series, by the values of its labels in their order."""
        bucket = bisect_left(self._bounds, amount)
        with self._lock:
            cell = self._cells.get(values)
            if cell is None:
                values = _bounded(self._cells, values)
                cell = self._cells.setdefault(values, _Cell([0] * (len(self._bounds) + 1)))
            cell.counts[bucket] += 1
            cell.sum += amount

    def lines(self) -> Iterable[str]:
        """Its lines of the exposition; buckets are cumulative."""
        with self._lock:
            cells = {each: (list(cell.counts), cell.sum) for each, cell in self._cells.items()}
        yield exposition.kind(self.name, "histogram")
        bounds = (*map(exposition.bound, self._bounds), "+Inf")
        for each, (counts, total) in sorted(cells.items()):
            labels = tuple(zip(self._labels, each, strict=True))
            so_far = 0
            for bound, count in zip(bounds, counts, strict=True):
                so_far += count
                yield exposition.sample(self.name, (*labels, ("le", bound)), so_far, "_bucket")
            yield exposition.sample(self.name, labels, total, "_sum")
            yield exposition.sample(self.name, labels, so_far, "_count")


class Gauge:
    """Numbers that are looked up when they are asked for, so that nothing keeps them current."""

    def __init__(
        self, name: str, labels: Labels, read: Callable[[], Mapping[Labels, float]]
    ) -> None:
        """Takes what tells the numbers, by the values of its labels in their order."""
        self.name = name
        self._labels = labels
        self._read = read

    def lines(self) -> Iterable[str]:
        """Its lines of the exposition."""
        yield exposition.kind(self.name, "gauge")
        for each, value in sorted(self._read().items()):
            yield exposition.sample(self.name, zip(self._labels, each, strict=True), value)


@dataclass
class _Cell:
    counts: list[int]
    sum: float = 0


def _bounded(cells: Mapping[Labels, object], values: Labels) -> Labels:
    return values if len(cells) < MAX_SERIES else (_OTHERS,) * len(values)
