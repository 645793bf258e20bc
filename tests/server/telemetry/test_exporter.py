"""The log says how many requests have spans that no collector received, and why."""

import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from server.metrics.timeline import Timeline
from server.telemetry import tracing
from server.telemetry.receiver import OtlpReceiver
from server.telemetry.tracing import Tracing
from tests import processes

TIME_LIMIT = 60


class FailingCollector(trace_service_pb2_grpc.TraceServiceServicer):
    """Refuses the first two batches of spans, and accepts the later batches."""

    def __init__(self) -> None:
        self.calls = threading.Semaphore(0)
        self._num_calls = 0

    def Export(self, request: Any, context: Any) -> Any:
        self._num_calls += 1
        self.calls.release()
        if self._num_calls <= 2:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "the key has expired")
        return trace_service_pb2.ExportTraceServiceResponse()


@pytest.fixture
def collector() -> FailingCollector:
    return FailingCollector()


@pytest.fixture
def endpoint(collector: FailingCollector) -> Iterator[str]:
    server = grpc.server(futures.ThreadPoolExecutor(1))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port(f"{processes.LOOPBACK}:0")
    server.start()
    yield f"http://{processes.LOOPBACK}:{port}"
    server.stop(None)


def record(spans: Tracing) -> None:
    timeline = Timeline()
    timeline.end()
    spans.record_rpc(timeline, method="/a/B", status="OK", metadata=(), peer="", runs_model=True)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_later_line_names_the_failure_of_the_batches_that_it_counts(
    collector: FailingCollector,
    endpoint: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracing, "_BATCH_MS", 1)
    spans = Tracing(OtlpReceiver(endpoint))
    for _ in range(3):
        record(spans)
        assert collector.calls.acquire(timeout=TIME_LIMIT)
    monkeypatch.setattr(tracing, "_LOG_SECONDS", 0)
    record(spans)
    spans.close()
    assert len(lines(caplog)) == 2
    for line in lines(caplog):
        assert line.startswith(f"the spans of 1 requests were not exported to {endpoint}: ")
        assert line.endswith("PERMISSION_DENIED, error details: the key has expired")


def test_requests_do_not_wait_for_an_absent_collector_and_are_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = processes.free_ports(1)
    monkeypatch.setattr(tracing, "_CLOSE_SECONDS", 1.0)
    monkeypatch.setattr(tracing, "_MAX_WAITING", 10)
    monkeypatch.setattr(tracing, "_BATCH_SIZE", 60)
    spans = Tracing(OtlpReceiver(f"http://{processes.LOOPBACK}:{port}"))
    for _ in range(13):
        record(spans)
    spans.close()
    (line,) = lines(caplog)
    assert line.startswith("the spans of 13 requests were not exported")
    assert "UNAVAILABLE" in line


@pytest.mark.parametrize(
    ("endpoint", "target"),
    [
        ("http://[::1]:4318", "[::1]:4318"),
        ("http://[::1]", "[::1]:4317"),
        ("http://127.0.0.1:4318", "127.0.0.1:4318"),
        ("http://collector", "collector:4317"),
    ],
)
def test_channel_has_the_address_of_the_url(
    endpoint: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets: list[str] = []
    create_channel = grpc.insecure_channel

    def record_target(target: str, **options: Any) -> grpc.Channel:
        targets.append(target)
        return create_channel(target, **options)

    monkeypatch.setattr(
        "opentelemetry.exporter.otlp.proto.grpc.exporter.insecure_channel", record_target
    )
    Tracing(OtlpReceiver(endpoint)).close()
    assert targets == [target]
