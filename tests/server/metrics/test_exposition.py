"""The page of metrics has the names, labels and buckets of TensorFlow Serving."""

import pytest
from prometheus_client.registry import CollectorRegistry

from server.metrics.collectors import (
    MAX_LABEL,
    MAX_SERIES,
    Counter,
    Gauges,
    Histogram,
    render_page,
)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def lines(registry: CollectorRegistry, *dropped_labels: str) -> list[str]:
    return render_page(registry.collect(), dropped_labels).decode().splitlines()


@pytest.mark.parametrize(
    ("name", "exported"),
    [
        ("/tensorflow/serving/batching_session/runs", ":tensorflow:serving:batching_session:runs"),
        (
            "/tensorflow/serving/request_example_count_total",
            ":tensorflow:serving:request_example_count_total",
        ),
        ("tpuserve_requests_total", "tpuserve_requests_total"),
    ],
)
def test_counters_have_their_names_and_whole_numbers(
    registry: CollectorRegistry, name: str, exported: str
) -> None:
    counter = Counter(registry, name, ("model", "status"), "Requests.")
    counter.add(("b", "OK"))
    counter.add(("a", "OK"), 12345)
    counter.add(("b", "OK"))
    assert lines(registry) == [
        f"# HELP {exported} Requests.",
        f"# TYPE {exported} counter",
        f'{exported}{{model="a",status="OK"}} 12345',
        f'{exported}{{model="b",status="OK"}} 2',
    ]


def test_buckets_of_a_histogram_are_cumulative_and_end_at_infinity(
    registry: CollectorRegistry,
) -> None:
    histogram = Histogram(registry, "/latency", ("api",), [10, 18, 188.9568])
    for amount in (10, 11, 12, 500.5):
        histogram.add(("Predict",), amount)
    assert lines(registry)[1:] == [
        "# TYPE :latency histogram",
        ':latency_bucket{api="Predict",le="10"} 1',
        ':latency_bucket{api="Predict",le="18"} 3',
        ':latency_bucket{api="Predict",le="188.957"} 3',
        ':latency_bucket{api="Predict",le="+Inf"} 4',
        ':latency_count{api="Predict"} 4',
        ':latency_sum{api="Predict"} 533.5',
    ]


def test_a_series_appears_with_its_first_value(registry: CollectorRegistry) -> None:
    counter = Counter(registry, "/tensorflow/serving/runs")
    histogram = Histogram(registry, "/rows", (), [1])
    assert lines(registry) == []
    counter.add()
    histogram.add((), 3)
    page = lines(registry)
    assert ":tensorflow:serving:runs 1" in page
    assert ":rows_sum 3" in page


def test_gauge_is_looked_up_when_it_is_asked_for(registry: CollectorRegistry) -> None:
    values: dict[tuple[str, ...], float] = {("half",): 1, ("old",): 1}
    Gauges(registry).add("/state", ("model",), lambda: values)
    assert lines(registry)[1:] == [
        "# TYPE :state gauge",
        ':state{model="half"} 1',
        ':state{model="old"} 1',
    ]
    values[("half",)] = 2
    del values["old",]
    assert lines(registry)[1:] == ["# TYPE :state gauge", ':state{model="half"} 2']


def test_what_would_end_a_label_or_look_like_a_value_is_escaped(
    registry: CollectorRegistry,
) -> None:
    name = 'a"b\\c\nd\udcff,le="1.0"} 1.0\n:tensorflow:serving:x_total 1.0'
    Counter(registry, "/c_total", ("model",)).add((name,))
    Gauges(registry).add("/g", ("model",), lambda: {(name,): 2})
    text = r'{model="a\"b\\c\nd\\udcff,le=\"1.0\"} 1.0\n:tensorflow:serving:x_total 1.0"}'
    assert [line for line in lines(registry) if line[0] != "#"] == [
        f":c_total{text} 1",
        f":g{text} 2",
    ]


def test_metrics_are_in_the_order_of_names(registry: CollectorRegistry) -> None:
    for name in ("/b", "/c", "/a"):
        Histogram(registry, name, (), [1]).add((), 1)
    names = [line.split()[2] for line in lines(registry) if line.startswith("# TYPE")]
    assert names == [":a", ":b", ":c"]


def test_series_that_agree_without_a_dropped_label_are_added_up(
    registry: CollectorRegistry,
) -> None:
    counter = Counter(registry, "/c_total", ("model", "version"))
    histogram = Histogram(registry, "/h", ("version",), [1])
    for version, amount in (("1", 2), ("2", 3)):
        counter.add(("half", version), amount)
        histogram.add((version,), amount - 1)
    page = lines(registry, "version")
    assert ':c_total{model="half"} 5' in page
    assert page[-4:] == [':h_bucket{le="1"} 1', ':h_bucket{le="+Inf"} 2', ":h_count 2", ":h_sum 3"]


def test_series_of_names_that_clients_make_up_are_bounded(registry: CollectorRegistry) -> None:
    counter = Counter(registry, "/c_total", ("model",))
    for number in range(MAX_SERIES + 5):
        counter.add((f"model-{number}",))
    counter.add(("model-0",))
    page = lines(registry)
    assert len(page) == MAX_SERIES + 3
    assert ':c_total{model="(others)"} 5' in page
    assert ':c_total{model="model-0"} 2' in page


def test_label_values_of_clients_do_not_fill_the_memory(registry: CollectorRegistry) -> None:
    """A model name in a request over gRPC may have megabytes."""
    counter = Counter(registry, "/c_total", ("model",))
    histogram = Histogram(registry, "/h", ("model",), [1])
    for collector in (counter, histogram):
        for letter in "ab":
            collector.add((letter * (MAX_LABEL + 1),), 1)
        collector.add(("a" * MAX_LABEL,), 1)
    page = lines(registry)
    assert [line for line in page if line.startswith(":c_total")] == [
        ':c_total{model="(others)"} 2',
        f':c_total{{model="{"a" * MAX_LABEL}"}} 1',
    ]
    assert ':h_count{model="(others)"} 2' in page
