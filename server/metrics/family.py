"""The values of metrics at one time, as data that can be sent to another process and added up."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import add
from typing import TypeAlias

from server.metrics import exposition

Labels: TypeAlias = tuple[str, ...]

EVENTS = "events"
"""The type of a family whose labels are messages. It is not exported to Prometheus."""


@dataclass(frozen=True)
class Family:
    """The values of all series of one metric at one time.

    A series is the metric with one combination of label values.

    Attributes:
      name: the metric's name in the registry, such as "/tensorflow/serving/request_count".
      metric_type: "counter", "histogram" or "gauge"; EVENTS for error messages, which are not
        exported to Prometheus.
      labels: the names of the labels.
      values: label values → value of the series. The value is a number, or for a histogram a tuple
        of the counts of all buckets, followed by the sum of the recorded amounts.
      bounds: the upper bounds of a histogram's buckets, except the last bucket, which has no bound;
        empty for other metrics.
      help: the description; empty for the metrics of TensorFlow Serving, which have none.
    """

    name: str
    metric_type: str
    labels: Labels
    values: Mapping[Labels, float | tuple[float, ...]]
    bounds: tuple[float, ...] = ()
    help: str = ""

    def lines(self) -> Iterable[str]:
        """Return the lines of the metric in Prometheus's text format.

        The description and the type come first, and then one line or more for each series.
        """
        if self.help:
            yield exposition.help_line(self.name, self.help)
        yield exposition.type_line(self.name, self.metric_type)
        for label_values, value in sorted(self.values.items()):
            labels = tuple(zip(self.labels, label_values, strict=True))
            if isinstance(value, tuple):
                yield from self._histogram_lines(labels, value)
            else:
                yield exposition.sample_line(self.name, labels, value)

    def _histogram_lines(
        self, labels: tuple[tuple[str, str], ...], value: tuple[float, ...]
    ) -> Iterable[str]:
        *counts, total = value
        cumulative = 0.0
        bounds = (*map(exposition.format_bound, self.bounds), "+Inf")
        for bound, count in zip(bounds, counts, strict=True):
            cumulative += count
            yield exposition.sample_line(self.name, (*labels, ("le", bound)), cumulative, "_bucket")
        yield exposition.sample_line(self.name, labels, total, "_sum")
        yield exposition.sample_line(self.name, labels, cumulative, "_count")


Snapshot: TypeAlias = Sequence[Family]
"""The metrics of a process at one time."""


def add_up(snapshots: Iterable[Snapshot]) -> list[Family]:
    """Add up the metrics of several processes, series by series.

    The result is in the order of the metrics' names.
    """
    families: dict[str, Family] = {}
    for snapshot in snapshots:
        for family in snapshot:
            known = families.get(family.name)
            families[family.name] = family if known is None else _add(known, family)
    return [families[name] for name in sorted(families)]


def format_snapshot(snapshot: Snapshot) -> bytes:
    """Return metrics in Prometheus's text format."""
    metrics = [family for family in snapshot if family.metric_type != EVENTS]
    lines = [line for metric in metrics for line in metric.lines()]
    return "\n".join([*lines, ""]).encode("utf-8", "backslashreplace")


def _add(first: Family, other: Family) -> Family:
    values = dict(first.values)
    for labels, value in other.values.items():
        known = values.get(labels)
        if isinstance(value, tuple) and isinstance(known, tuple):
            values[labels] = tuple(map(add, known, value))
        elif known is None or isinstance(value, tuple) or isinstance(known, tuple):
            values[labels] = value
        else:
            values[labels] = known + value
    return replace(first, values=values)
