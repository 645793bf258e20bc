"""The log says how many requests have spans that no collector received, and why."""

import threading
from collections.abc import Iterator, Sequence
from concurrent import futures
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from server.telemetry import exporter
from server.telemetry.receiver import OtlpReceiver
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


def test_later_line_names_the_failure_of_the_batches_that_it_counts(
    collector: FailingCollector,
    endpoint: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoding = threading.Semaphore(0)

    def encode(items: Sequence[str]) -> bytes:
        encoding.release()
        return b""

    monkeypatch.setattr(exporter, "_BATCH_SECONDS", 0.001)
    spans = exporter.SpanExporter[str](OtlpReceiver(endpoint, headers=""), encode)
    for _ in range(3):
        spans.add("request")
        assert encoding.acquire(timeout=TIME_LIMIT)
        assert collector.calls.acquire(timeout=TIME_LIMIT)
    monkeypatch.setattr(exporter, "_LOG_SECONDS", 0)
    spans.add("request")
    spans.close(TIME_LIMIT)
    lines = [record.getMessage() for record in caplog.records if record.name == exporter.__name__]
    assert (
        lines
        == [
            f"the spans of 1 requests were not exported to {endpoint}: "
            f"PERMISSION_DENIED: the key has expired"
        ]
        * 2
    )


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

    def record_target(target: str, options: Any) -> grpc.Channel:
        targets.append(target)
        return create_channel(target, options)

    monkeypatch.setattr(grpc, "insecure_channel", record_target)
    spans = exporter.SpanExporter[str](OtlpReceiver(endpoint, headers=""), lambda items: b"")
    spans.close(TIME_LIMIT)
    assert targets == [target]
