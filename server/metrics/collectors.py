"""The types of metrics, with series that appear with their first value, and the page of them."""

import functools
import os
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
_BUCKET = "le"
_LabelPairs: TypeAlias = tuple[tuple[str, str], ...]

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


def render_page(metrics: Iterable[Metric], dropped_labels: Collection[str] = ()) -> bytes:
    """Return metrics in Prometheus's text format, in the order of their names.

    Series that agree without the dropped labels are added up. prometheus_client's own function
    takes three times as long, adds "_total" to the names of TensorFlow Serving's counters, and
    writes whole numbers as fractions.
    """
    lines = []
    for metric in sorted(metrics, key=lambda metric: metric.name):
        name = _page_name(metric.name + ("_total" if metric.type == "counter" else ""))
        lines.append(f"# HELP {name} {metric.documentation}\n# TYPE {name} {metric.type}\n")
        series = _add_up(metric.samples, dropped_labels)
        for labels in sorted(series):
            pairs = [f'{label}="{_escape(value)}"' for label, value in sorted(labels)]
            plain_labels = f"{{{','.join(pairs)}}}" if pairs else ""
            bucket_labels = f'{{{",".join([*pairs, _BUCKET])}="'
            for (sample_name, bound), number in series[labels].items():
                text = f'{bucket_labels}{bound.removesuffix(".0")}"}}' if bound else plain_labels
                lines.append(f"{_page_name(sample_name)}{text} {_number_text(number)}\n")
    return "".join(lines).encode()


def exported_name(name: str) -> str:
    """Return the name for Prometheus: "/a/b" becomes ":a:b"."""
    return name.replace("/", ":")


def _add_up(
    samples: Iterable[Sample], dropped_labels: Collection[str]
) -> dict[_LabelPairs, dict[tuple[str, str], float]]:
    """Return the values of each series by name and, in a histogram, bound of the bucket."""
    series: dict[_LabelPairs, dict[tuple[str, str], float]] = {}
    left_out = {_BUCKET, *dropped_labels}
    for sample in samples:
        labels = tuple([pair for pair in sample.labels.items() if pair[0] not in left_out])
        values = series.setdefault(labels, {})
        key = sample.name, sample.labels.get(_BUCKET, "")
        values[key] = values.get(key, 0) + sample.value
    return series


@functools.cache
def _page_name(name: str) -> str:
    is_renamed = name.startswith(":tensorflow:serving:") and not name.endswith(
        "_example_count_total"
    )
    return name.removesuffix("_total") if is_renamed else name


def _number_text(number: float) -> str:
    return repr(float(number)).removesuffix(".0")


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _printable(value: str) -> str:
    """Escape what UTF-8 cannot encode: half of a surrogate pair, which JSON can have."""
    return value.encode("utf-8", "backslashreplace").decode()


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_MESSAGE else text[: _MAX_MESSAGE - 1] + "…"
