"""The sampler that the environment names decides which requests have spans."""

import pytest

from server.metrics.timeline import Timeline
from server.telemetry.receiver import OtlpReceiver
from server.telemetry.tracing import Tracing
from tests.server.telemetry.collector import Collector

PARENT = "b7ad6b7169203331"
# A ratio of 0.5 samples the traces whose last 8 bytes are below 2 ** 63.
LOW, HIGH = "1" * 16 + "7fffffffffffffff", "1" * 16 + "8000000000000000"
REQUESTS = {
    "no parent": "",
    "sampled, low": f"00-{LOW}-{PARENT}-01",
    "sampled, high": f"00-{HIGH}-{PARENT}-01",
    "not sampled, low": f"00-{LOW}-{PARENT}-00",
    "not sampled, high": f"00-{HIGH}-{PARENT}-00",
}
SAMPLED_PARENTS = {"sampled, low", "sampled, high"}


def sampled_requests() -> set[str]:
    """Record requests with different parents, and return the names of those that have spans."""
    collector = Collector()
    tracing = Tracing(OtlpReceiver(collector.endpoint))
    for name, parent in REQUESTS.items():
        timeline = Timeline()
        timeline.end()
        tracing.record_http(
            timeline,
            method="GET",
            route="",
            path=name,
            scheme="http",
            status=200,
            headers=[(b"traceparent", parent.encode())] if parent else [],
            peer="",
            runs_model=False,
        )
    tracing.close()
    collector.stop()
    return {str(span.attributes["url.path"]) for span in collector.spans}


@pytest.mark.parametrize(
    ("sampler", "ratio", "expected"),
    [
        ("parentbased_always_on", "", {"no parent"} | SAMPLED_PARENTS),
        ("parentbased_always_off", "", SAMPLED_PARENTS),
        ("parentbased_traceidratio", "0", SAMPLED_PARENTS),
        ("parentbased_traceidratio", "1", {"no parent"} | SAMPLED_PARENTS),
        ("always_on", "", set(REQUESTS)),
        ("always_off", "", set()),
    ],
)
def test_sampler_decides_for_roots_and_parents(
    monkeypatch: pytest.MonkeyPatch, sampler: str, ratio: str, expected: set[str]
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", ratio)
    assert sampled_requests() == expected


def test_ratio_without_parents_decides_by_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    assert sampled_requests() - {"no parent"} == {"sampled, low", "not sampled, low"}


def test_default_sampler_follows_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_TRACES_SAMPLER", raising=False)
    assert sampled_requests() == {"no parent"} | SAMPLED_PARENTS
