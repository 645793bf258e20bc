"""The metrics page has exactly the lines that TensorFlow Serving would write."""

import pytest

from server.metrics import Registry
from server.metrics import exposition as exposition_format
from server.metrics.collectors import MAX_LABEL, MAX_SERIES, Counter, Gauge, Histogram
from server.metrics.family import format_snapshot


def exposition(registry: Registry) -> list[str]:
    return format_snapshot(registry.snapshot()).decode().splitlines()


@pytest.mark.parametrize(
    ("name", "exported"),
    [
        ("/tensorflow/serving/request_count", ":tensorflow:serving:request_count"),
        ("/a-b/c.d e", ":a:b:c:d:e"),
    ],
)
def test_what_names_may_not_hold_is_a_colon(name: str, exported: str) -> None:
    assert exposition_format.exported_name(name) == exported


@pytest.mark.parametrize(
    ("value", "text"), [(3, "3"), (3.0, "3"), (0.5, "0.5"), (12345678, "12345678")]
)
def test_values_are_exact(value: float, text: str) -> None:
    assert exposition_format.format_number(value) == text


def test_counter_has_a_line_per_set_of_labels_and_no_help() -> None:
    registry = Registry()
    counter = registry.add(Counter("/requests", ("model", "status")))
    counter.add(("b", "OK"))
    counter.add(("a", "OK"), 4)
    counter.add(("b", "OK"))
    assert exposition(registry) == [
        "# TYPE :requests counter",
        ':requests{model="a",status="OK"} 4',
        ':requests{model="b",status="OK"} 2',
    ]


def test_series_without_labels_has_empty_braces() -> None:
    registry = Registry()
    registry.add(Counter("/runs")).add()
    assert exposition(registry)[1] == ":runs{} 1"


def test_buckets_of_a_histogram_are_cumulative_and_end_at_infinity() -> None:
    registry = Registry()
    histogram = registry.add(Histogram("/latency", ("api",), [10, 18, 188.9568]))
    for amount in (10, 11, 12, 500):
        histogram.add(("Predict",), amount)
    assert exposition(registry) == [
        "# TYPE :latency histogram",
        ':latency_bucket{api="Predict",le="10"} 1',
        ':latency_bucket{api="Predict",le="18"} 3',
        ':latency_bucket{api="Predict",le="188.957"} 3',
        ':latency_bucket{api="Predict",le="+Inf"} 4',
        ':latency_sum{api="Predict"} 533',
        ':latency_count{api="Predict"} 4',
    ]


def test_gauge_is_looked_up_when_it_is_asked_for() -> None:
    registry = Registry()
    values: dict[tuple[str, ...], float] = {("half",): 1}
    registry.add(Gauge("/state", ("model",), lambda: values))
    values[("half",)] = 2
    assert exposition(registry) == ["# TYPE :state gauge", ':state{model="half"} 2']


def test_what_would_end_a_label_is_escaped() -> None:
    registry = Registry()
    registry.add(Counter("/c", ("model",))).add(('a"b\\c\nd\udcff',))
    assert exposition(registry)[1] == r':c{model="a\"b\\c\nd\udcff"} 1'


def test_metrics_are_in_the_order_of_names() -> None:
    registry = Registry()
    for name in ("/b", "/c", "/a"):
        registry.add(Counter(name))
    assert exposition(registry) == [f"# TYPE :{name} counter" for name in "abc"]


def test_series_that_agree_without_a_dropped_label_are_added_up() -> None:
    registry = Registry()
    counter = registry.add(Counter("/c", ("model", "version")))
    histogram = registry.add(Histogram("/h", ("version",), [1]))
    for version, amount in (("1", 2), ("2", 3)):
        counter.add(("half", version), amount)
        histogram.add((version,), amount - 1)
    page = format_snapshot(registry.snapshot(), ["version"]).decode().splitlines()
    assert ':c{model="half"} 5' in page
    assert page[-4:-2] == [':h_bucket{le="1"} 1', ':h_bucket{le="+Inf"} 2']
    assert page[-2:] == [":h_sum{} 3", ":h_count{} 2"]


def test_series_of_names_that_clients_make_up_are_bounded() -> None:
    registry = Registry()
    counter = registry.add(Counter("/c", ("model",)))
    for number in range(MAX_SERIES + 5):
        counter.add((f"model-{number}",))
    counter.add(("model-0",))
    lines = exposition(registry)
    assert len(lines) == MAX_SERIES + 2
    assert ':c{model="(others)"} 5' in lines
    assert ':c{model="model-0"} 2' in lines


def test_label_values_of_clients_do_not_fill_the_memory() -> None:
    """A model name in a request over gRPC may have megabytes."""
    counter, histogram = Counter("/c", ("model",)), Histogram("/h", ("model",), [1])
    for collector in (counter, histogram):
        for letter in "ab":
            collector.add((letter * (MAX_LABEL + 1),), 1)
        collector.add(("a" * MAX_LABEL,), 1)
        assert sorted(collector.snapshot().values) == [("(others)",), ("a" * MAX_LABEL,)]
    assert counter.snapshot().values["(others)",] == 2
