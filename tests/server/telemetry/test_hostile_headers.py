"""Headers that clients choose neither lose the spans of other requests nor fill the memory."""

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from server.metrics.timeline import Timeline
from server.telemetry.receiver import OtlpReceiver
from server.telemetry.tracing import Tracing
from tests.server.telemetry.collector import Collector, Span

_LONGEST = 1024
_LONG = "x" * 60_000


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.stop()


def record(
    collector: Collector, *headers: tuple[str, str], path: str = "/v1/models/half:predict"
) -> list[Span]:
    """Record a request with headers and a usual request, and return their spans."""
    tracing = Tracing(OtlpReceiver(collector.endpoint))
    for each_path, each_headers in ((path, headers), ("/usual", ())):
        timeline = Timeline()
        timeline.model = path
        timeline.end()
        tracing.record_http(
            timeline,
            method="POST",
            route="",
            path=each_path,
            scheme="http",
            status=200,
            headers=[(name.encode(), value.encode("latin-1")) for name, value in each_headers],
            peer="",
            runs_model=True,
        )
    tracing.close()
    return [span for span in collector.spans if span.name == "POST"]


@pytest.mark.parametrize("port", ["\u00b2", "9" * 1000, "99999", "", "-1"])
def test_host_without_a_valid_port_is_the_address(collector: Collector, port: str) -> None:
    span, usual = record(collector, ("host", f"half:{port}"))
    assert span.attributes["server.address"] == f"half:{port}"
    assert "server.port" not in span.attributes
    assert usual.attributes["url.path"] == "/usual"


def test_host_with_a_port_is_split(collector: Collector) -> None:
    span, _ = record(collector, ("host", "[::1]:8501"))
    assert span.attributes["server.address"] == "[::1]"
    assert span.attributes["server.port"] == 8501


def test_long_texts_are_cut_or_left_out(collector: Collector) -> None:
    names = ("host", "user-agent", "traceparent", "tracestate")
    span, _ = record(collector, *((name, _LONG) for name in names), path=f"/{_LONG}?{_LONG}")
    assert all(len(str(value)) <= _LONGEST for value in span.attributes.values())
    assert (span.parent_id, span.trace_state) == ("", "")


def test_other_headers_do_not_wait_for_the_export(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[ReadableSpan] = []
    monkeypatch.setattr(BatchSpanProcessor, "on_end", lambda self, span: waiting.append(span))
    record(collector, ("x-large", _LONG), ("host", "half"))
    assert all(_LONG not in dict(span.attributes or {}).values() for span in waiting)
    assert waiting[0].attributes is not None
    assert waiting[0].attributes["server.address"] == "half"
