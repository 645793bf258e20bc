"""With --log_format=json every line is JSON, and a traced request's lines name its trace and span.

The server is a whole one: its own loggers, those of uvicorn and grpcio, and several processes.
"""

import json
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from tests.server.frontends.grpc import clients
from tests.server.telemetry.collector import Collector
from tests.server.whole_server.fake_server import GOOD, SECONDS, FakeServer

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
NOT_SAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
BROKEN = '{"signature_name": "broken", "instances": [1]}'
FAILING = '{"signature_name": "failing", "instances": [1]}'


def read_lines(log: str) -> list[dict[str, Any]]:
    """Return the lines of a log, each of which must be JSON and have the common fields."""
    lines = [json.loads(line) for line in log.splitlines()]
    for line in lines:
        assert {"time", "level", "logger"} <= line.keys()
    return lines


@pytest.mark.slow
def test_lines_of_a_traced_request_name_its_span(tmp_path: Path) -> None:
    collector = Collector()
    server = FakeServer(
        tmp_path, otlp_endpoint=collector.endpoint, log_format="json", access_log=True
    )
    for body in (GOOD, BROKEN, FAILING):
        httpx.post(server.predict_url, content=body, headers=SAMPLED, timeout=SECONDS)
    # A large body is handled in a thread.
    many = json.dumps({"signature_name": "failing", "instances": [1] * 5000})
    httpx.post(server.predict_url, content=many, headers=SAMPLED, timeout=SECONDS)
    httpx.post(server.predict_url, content=FAILING, headers=NOT_SAMPLED, timeout=SECONDS)
    with clients.connect(server.rpc) as client, pytest.raises(grpc.RpcError):
        client.predict(spec={"name": "half", "signature_name": "failing"}, x=[2.0])
    status, log = server.stop()
    collector.stop()
    assert status == 0
    lines = read_lines(log)
    spans = {span.span_id: span.trace_id for span in collector.spans}
    access = [line for line in lines if line["logger"] == "server.access"]
    assert [line.get("trace_id") for line in access[:5]] == [TRACE] * 4 + [None]
    failures = [line for line in lines if "failed" in line.get("message", "")]
    assert len(failures) == 5
    assert "Traceback" in failures[0]["exception"]
    traced = [line for line in failures if "trace_id" in line]
    assert len(traced) == 4
    for line in [*traced, *access[:4], access[5]]:
        assert spans[line["span_id"]] == line["trace_id"]
    # Each line of a failure has the span of a line of the access log.
    assert {line["span_id"] for line in traced} <= {line.get("span_id") for line in access}


@pytest.mark.slow
def test_processes_and_their_supervisor_write_json(tmp_path: Path) -> None:
    server = FakeServer(tmp_path, processes=2, log_format="json")
    assert server.is_answering()
    status, log = server.stop()
    assert status == 0
    lines = read_lines(log)
    assert {"server.app", "server.supervisor"} <= {line["logger"] for line in lines}
    assert [line["message"] for line in lines].count("ready") == 1
