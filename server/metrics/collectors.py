"""The types of metrics, with series that appear with their first value, and the page of them."""

import os
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import prometheus_client
from prometheus_client.core import GaugeMetricFamily, Metric, Sample
from prometheus_client.mmap_dict import MmapedDict, mmap_key
from prometheus_client.registry import Collector, CollectorRegistry

Labels: TypeAlias = tuple[str, ...]

# The largest number of time series of a metric. Further label values are counted in one common
# series.
MAX_SERIES = 2000
# The largest number of characters of a label value. Longer values are counted in the common series
# "(others)", because the model name in a gRPC request can be megabytes long.
MAX_LABEL = 500
_OTHER_VALUES = "(others)"
# The largest number of different errors that `RecentErrors` keeps, and the largest number of
# characters of each message.
_MAX_ERRORS, _MAX_MESSAGE = 30, 500
SUM, MAXIMUM = "livesum", "livemax"
"""How the values that a gauge has in several processes become one."""
# What the client library of Prometheus writes and TensorFlow Serving does not: "_total" after the
# names of counters, and fractions of whole numbers.
_SUFFIX = re.compile(
    rb"^((?:# (?:HELP|TYPE) )?:tensorflow:serving:[a-z_:]+(?<!_example_count))_total(?=[ {])"
    rb'|([,{]le="\d+)\.0(?=")|\.0$',
    re.MULTILINE,
)

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]


class _Collector:
    """A metric with one time series per combination of label values."""

    def __init__(
        self,
        name: str,
        labels: Labels,
        create: Callable[[], Any],
        is_known: Callable[[str], bool] = lambda value: True,
    ) -> None:
        self.name, self.labels = name, labels
        # A metric without labels has a series at once: it is created with its first value.
        self._create = create
        self._is_known = is_known
        self._metric: Any = create() if labels else None
        self._children: dict[Labels, Any] = {}
        self._lock = threading.Lock()

    def _add_child(self, values: Labels) -> Any:
        """Return the series of label values, or the common series if no new one is allowed."""
        with self._lock:
            if self._metric is None:
                self._metric = self._create()
            is_known = not values or self._is_known(values[0])
            has_room = len(self._children) < (MAX_SERIES if is_known else MAX_SERIES // 2)
            if not has_room or any(len(value) > MAX_LABEL for value in values):
                values = (_OTHER_VALUES,) * len(values)
            child = self._children.get(values)
            if child is None:
                child = self._metric
                if values:
                    child = child.labels(*map(_printable, values))
                self._children[values] = child
            return child


class Counter(_Collector):
    """A metric that only grows. It has one number per combination of label values.

    Args:
      is_known: returns whether a value of the first label is known to the server, such as the
        name of a configured model. Values that clients make up get half of the series at most.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        name: str,
        labels: Labels = (),
        help: str = "",
        is_known: Callable[[str], bool] = lambda value: True,
    ) -> None:
        super().__init__(
            name,
            labels,
            lambda: prometheus_client.Counter(exported_name(name), help, labels, registry=registry),
            is_known,
        )

    def add(self, values: Labels = (), amount: int = 1) -> None:
        """Add an amount to the series with these label values, in the order of the labels."""
        (self._children.get(values) or self._add_child(values)).inc(amount)


class Histogram(_Collector):
    """A metric that counts amounts in buckets, per combination of label values.

    Args:
      bounds: the increasing upper bounds of the buckets, which are rounded to six digits, as
        TensorFlow Serving prints them. One more bucket, without bound, follows.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        name: str,
        labels: Labels,
        bounds: Sequence[float],
        help: str = "",
    ) -> None:
        super().__init__(
            name,
            labels,
            lambda: prometheus_client.Histogram(
                exported_name(name),
                help,
                labels,
                registry=registry,
                buckets=[float(f"{bound:g}") for bound in bounds],
            ),
        )

    def add(self, values: Labels, amount: float) -> None:
        """Record an amount in the series with these label values, in the order of the labels."""
        (self._children.get(values) or self._add_child(values)).observe(amount)


class Gauges(Collector):
    """The metrics that are computed whenever the metrics are read."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._gauges: dict[str, tuple[Labels, Callable[[], Mapping[Labels, float]], str]] = {}
        self._modes: dict[str, str] = {}
        self._lock = threading.Lock()
        registry.register(self)

    def add(
        self,
        name: str,
        labels: Labels,
        read: Callable[[], Mapping[Labels, float]],
        help: str = "",
        mode: str = SUM,
    ) -> None:
        """Add a gauge, which takes the place of an earlier one of the same name.

        `mode`, SUM or MAXIMUM, says what makes one value of those of several processes.
        """
        self._gauges[name] = labels, read, help
        self._modes[exported_name(name)] = mode

    def collect(self) -> Iterable[Metric]:
        """Yield the gauges with their present values."""
        for name, (labels, read, help) in list(self._gauges.items()):
            family = GaugeMetricFamily(exported_name(name), help, labels=labels)
            for values, value in read().items():
                family.add_metric([*map(_printable, values)], value)
            yield family

    def publish(self, directory: str) -> None:
        """Write the present values to the files that prometheus_client reads of each process.

        Its own gauges could not forget a series, such as the state of a version that has gone.
        """
        with self._lock:
            for mode in (SUM, MAXIMUM):
                path = Path(directory, f"gauge_{mode}_{os.getpid()}.db")
                draft = path.with_suffix(".draft")
                draft.unlink(missing_ok=True)
                file = MmapedDict(str(draft))  # type: ignore[no-untyped-call]
                for family in self.collect():
                    if self._modes[family.name] == mode:
                        for sample in family.samples:
                            names, texts = list(sample.labels), list(sample.labels.values())
                            key = mmap_key(
                                family.name, family.name, names, texts, family.documentation
                            )
                            file.write_value(key, sample.value, 0.0)  # type: ignore[no-untyped-call]
                file.close()  # type: ignore[no-untyped-call]
                draft.rename(path)


@dataclass(frozen=True)
class RecentError:
    """Equal errors: their number, and the time of the last one in milliseconds since 1970."""

    model: str
    entrypoint: str
    status: str
    message: str
    count: int
    time_ms: int


class RecentErrors:
    """The messages of the latest errors, for the web page for operators.

    Equal errors share an entry, which has the number of their occurrences.
    """

    def __init__(self) -> None:
        # Error → (the number of its occurrences, the time of the last one), ordered by this time,
        # so that the first entry is the oldest.
        self._errors: dict[tuple[str, str, str, str], tuple[int, int]] = {}
        self._lock = threading.Lock()

    def add(self, model: str, entrypoint: str, status: str, message: str) -> None:
        """Record an error of a request.

        Long model names and messages are cut, because clients choose them.

        Args:
          status: the name of the canonical code, such as "NOT_FOUND".
        """
        error = (_cut(model), entrypoint, status, _cut(message))
        now_ms = time.time_ns() // 1_000_000
        with self._lock:
            count, _ = self._errors.pop(error, (0, 0))
            self._errors[error] = count + 1, now_ms
            if len(self._errors) > _MAX_ERRORS:
                del self._errors[next(iter(self._errors))]

    def entries(self) -> list["RecentError"]:
        """Return the errors, the latest one first."""
        with self._lock:
            errors = list(self._errors.items())
        return [RecentError(*error, *number) for error, number in reversed(errors)]


class Page(Collector):
    """The metrics at one time, in the order of their names."""

    def __init__(self, metrics: Iterable[Metric], dropped_labels: Collection[str] = ()) -> None:
        self._metrics = [_without_labels(metric, dropped_labels) for metric in metrics]
        self._metrics.sort(key=lambda metric: metric.name)

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        return self._metrics

    def text(self) -> bytes:
        """Return the metrics in Prometheus's text format, with TensorFlow Serving's names."""
        return _SUFFIX.sub(rb"\1\2", prometheus_client.generate_latest(self))


def exported_name(name: str) -> str:
    """Return the name for Prometheus: "/a/b" becomes ":a:b"."""
    return name.replace("/", ":")


def _without_labels(metric: Metric, dropped: Collection[str]) -> Metric:
    sums: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for sample in metric.samples:
        labels = tuple(item for item in sample.labels.items() if item[0] not in dropped)
        sums[sample.name, labels] = sums.get((sample.name, labels), 0) + sample.value
    result = Metric(metric.name, metric.documentation, metric.type)
    # The lines of a histogram's series stay together, in the order of its buckets.
    result.samples = [
        Sample(name, dict(labels), value)
        for (name, labels), value in sorted(
            sums.items(), key=lambda item: [text for label, text in item[0][1] if label != "le"]
        )
    ]
    return result


def _printable(value: str) -> str:
    """Escape what UTF-8 cannot encode: half of a surrogate pair, which JSON can have."""
    return value.encode("utf-8", "backslashreplace").decode()


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_MESSAGE else text[: _MAX_MESSAGE - 1] + "…"
