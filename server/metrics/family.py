"""The values of metrics at one time, as data that can be sent to another process and added up."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
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
        name = exposition.exported_name(self.name)
        bounds = [*map(exposition.format_bound, self.bounds), "+Inf"]
        for label_values, value in sorted(self.values.items()):
            labels = exposition.format_labels(zip(self.labels, label_values, strict=True))
            if not isinstance(value, tuple):
                yield f"{name}{{{labels}}} {exposition.format_number(value)}"
                continue
            *counts, total = value
            start = f'{name}_bucket{{{labels}{"," if labels else ""}le="'
            for bound, count in zip(bounds, accumulate(counts), strict=True):
                yield f'{start}{bound}"}} {int(count)}'
            yield f"{name}_sum{{{labels}}} {exposition.format_number(total)}"
            yield f"{name}_count{{{labels}}} {int(sum(counts))}"

    def without_labels(self, dropped: Collection[str]) -> "Family":
        """Return the metric without some labels: series that then agree are added up."""
        kept = [index for index, label in enumerate(self.labels) if label not in dropped]
        if len(kept) == len(self.labels):
            return self
        values: dict[Labels, float | tuple[float, ...]] = {}
        for label_values, value in self.values.items():
            _add_to(values, tuple(label_values[index] for index in kept), value)
        return replace(self, labels=tuple(self.labels[index] for index in kept), values=values)


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


def format_snapshot(snapshot: Snapshot, dropped_labels: Collection[str] = ()) -> bytes:
    """Return metrics in Prometheus's text format, without `dropped_labels`."""
    metrics = [family for family in snapshot if family.metric_type != EVENTS]
    lines = [line for metric in metrics for line in metric.without_labels(dropped_labels).lines()]
    return "\n".join([*lines, ""]).encode("utf-8", "backslashreplace")


def _add(first: Family, other: Family) -> Family:
    values = dict(first.values)
    for labels, value in other.values.items():
        _add_to(values, labels, value)
    return replace(first, values=values)


def _add_to(
    values: dict[Labels, float | tuple[float, ...]],
    labels: Labels,
    value: float | tuple[float, ...],
) -> None:
    known = values.get(labels)
    if isinstance(value, tuple) and isinstance(known, tuple):
        values[labels] = tuple(map(add, known, value))
    elif known is None or isinstance(value, tuple) or isinstance(known, tuple):
        values[labels] = value
    else:
        values[labels] = known + value
