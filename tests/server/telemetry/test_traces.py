"""A collector receives a span of each request, with the stages of the request as child spans."""

import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest

from tests import processes
from tests.server.frontends.grpc import clients
from tests.server.telemetry.collector import Collector, Span
from tests.server.whole_server.fake_server import GOOD, SECONDS, FakeServer
from tpuserve.proto.open_inference import message_type

INTERNAL, SERVER = 1, 2
TRACE, PARENT, OTHER_TRACE = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "1" * 32
SAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"}
NOT_SAMPLED = {"traceparent": f"00-{OTHER_TRACE}-{PARENT}-00"}
MODEL = {
    "tpuserve.model": "half",
    "tpuserve.version": "3",
    "tpuserve.signature": "serving_default",
    "tpuserve.metagraph": "serve",
}


STREAM = "inference.GRPCInferenceService/ModelStreamInfer"
INFER_MESSAGE: bytes = message_type("ModelInferRequest")(
    model_name="half",
    inputs=[{"name": "x", "datatype": "FP32", "shape": [1], "contents": {"fp32_contents": [2]}}],
).SerializeToString()


@pytest.fixture(
    scope="module",
    params=[{}, {"enable_batching": True}],
    ids=["one process", "batching"],
)
def collector(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Collector]:
    """Return a collector that has the spans of a server, which has stopped."""
    collector = Collector()
    flags = {"otlp_endpoint": collector.endpoint} | request.param
    server = FakeServer(tmp_path_factory.mktemp("traces"), **flags)
    post(server.predict_url, GOOD, SAMPLED)
    post(server.predict_url, GOOD, NOT_SAMPLED)
    post(server.predict_url, "{")
    post(server.predict_url, '{"signature_name": "broken", "instances": [1]}')
    tensors = '{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [2]}]}'
    post(f"{server.url}/v2/models/half/versions/3/infer?a=1&key=sesame", tensors)
    httpx.get(f"{server.url}/v1/models/half", timeout=SECONDS)
    with clients.connect(server.rpc) as client:
        client.prediction.Predict(
            clients.predict_request(x=[2.0]), timeout=SECONDS, metadata=list(SAMPLED.items())
        )
        with pytest.raises(grpc.RpcError):
            client.predict(y=[2.0])
        stream = client.channel.stream_stream(f"/{STREAM}")
        assert len(list(stream(iter([b"\xff", INFER_MESSAGE]), timeout=SECONDS))) == 2
    assert server.stop()[0] == 0
    yield collector
    collector.stop()


def post(url: str, body: str, headers: dict[str, str] | None = None) -> None:
    httpx.post(url, content=body, headers=headers, timeout=SECONDS)


def find_span(collector: Collector, name: str, **attributes: object) -> Span:
    """Return the only span with a name and with attributes, whose dots are underscores here."""
    (span,) = [
        span
        for span in collector.spans
        if span.name == name
        and all(
            span.attributes.get(key.replace("__", ".")) == attributes[key] for key in attributes
        )
    ]
    return span


INFER = "POST /v2/models/{model}/versions/{version}/infer"
PREDICT = "POST /v1/models/{model}:predict"


@pytest.mark.slow
def test_span_over_http_has_the_stable_attributes(collector: Collector) -> None:
    span = find_span(collector, INFER)
    attributes = dict(span.attributes)
    assert (span.kind, span.is_error) == (SERVER, False)
    assert attributes.pop("user_agent.original").startswith("python-httpx/")
    assert attributes.pop("server.port") > 0
    assert attributes == MODEL | {
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "http.route": "/v2/models/{model}/versions/{version}/infer",
        "url.path": "/v2/models/half/versions/3/infer",
        "url.query": "a=1&key=REDACTED",
        "url.scheme": "http",
        "client.address": processes.LOOPBACK,
        "server.address": processes.LOOPBACK,
    }
    assert span.resource["service.name"] == "tpuserve"


def test_each_message_of_a_stream_has_a_span(collector: Collector) -> None:
    refused = find_span(collector, STREAM, rpc__response__status_code="INVALID_ARGUMENT")
    answered = find_span(collector, STREAM, rpc__response__status_code="OK")
    assert answered.attributes["tpuserve.model"] == "half"
    assert answered.trace_id != refused.trace_id


def test_span_over_grpc_has_the_attributes_of_an_rpc(collector: Collector) -> None:
    name = "tensorflow.serving.PredictionService/Predict"
    span = find_span(collector, name, rpc__response__status_code="OK")
    assert (span.kind, span.is_error) == (SERVER, False)
    assert span.attributes == MODEL | {
        "rpc.system.name": "grpc",
        "rpc.method": name,
        "rpc.response.status_code": "OK",
        "network.peer.address": processes.LOOPBACK,
    }
    refused = find_span(collector, name, rpc__response__status_code="INVALID_ARGUMENT")
    assert refused.attributes["error.type"] == "INVALID_ARGUMENT"
    assert not refused.is_error


def test_spans_join_the_trace_of_their_client(collector: Collector) -> None:
    joined = [span for span in collector.spans if span.parent_id == PARENT]
    assert {span.trace_id for span in joined} == {TRACE}
    assert {span.trace_state for span in joined} == {"vendor=1"}
    assert sorted(span.name for span in joined) == [
        PREDICT,
        "tensorflow.serving.PredictionService/Predict",
    ]


def test_request_that_the_client_does_not_sample_has_no_span(collector: Collector) -> None:
    assert OTHER_TRACE not in {span.trace_id for span in collector.spans}


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        (PREDICT, {"http__response__status_code": 200}),
        (INFER, {}),
        (
            "tensorflow.serving.PredictionService/Predict",
            {"rpc__response__status_code": "OK"},
        ),
    ],
)
def test_stages_are_children_and_follow_each_other(
    collector: Collector, name: str, attributes: dict[str, object]
) -> None:
    span = find_span(collector, name, **attributes)
    children = collector.children(span)
    names = [child.name for child in children]
    assert [name for name in names if name != "queue"] == ["decode", "run", "encode"]
    assert names[0] == "queue"
    assert {(child.kind, child.trace_id) for child in children} == {(INTERNAL, span.trace_id)}
    assert [child.start_ns for child in children[1:]] == [child.end_ns for child in children[:-1]]
    assert span.start_ns <= children[0].start_ns
    assert children[-1].end_ns == span.end_ns
    assert abs(time.time_ns() - span.end_ns) < 3600e9


def test_failed_request_ends_in_the_stage_that_failed(collector: Collector) -> None:
    invalid = find_span(collector, PREDICT, http__response__status_code=400)
    assert [child.name for child in collector.children(invalid)] == ["queue", "decode"]
    assert not invalid.is_error
    assert invalid.attributes["tpuserve.model"] == "half"
    broken = find_span(collector, PREDICT, http__response__status_code=500)
    assert broken.is_error
    assert broken.attributes["error.type"] == "500"
    assert collector.children(broken)[-1].name == "run"


def test_request_that_runs_no_model_has_a_span_without_children(collector: Collector) -> None:
    status = find_span(collector, "GET /v1/models/{model}")
    assert collector.children(status) == []
    assert status.attributes["http.response.status_code"] == 200


@pytest.mark.slow
def test_environment_names_the_collector_and_the_service_and_sets_the_sampler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "digits")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    collector = Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
    server = FakeServer(tmp_path)
    post(server.predict_url, GOOD)
    post(server.predict_url, GOOD, SAMPLED)
    assert server.stop()[0] == 0
    collector.stop()
    assert {span.trace_id for span in collector.spans} == {TRACE}
    assert {span.resource["service.name"] for span in collector.spans} == {"digits"}


@pytest.mark.slow
def test_server_without_a_collector_answers_and_stops(tmp_path: Path) -> None:
    (port,) = processes.free_ports(1)
    server = FakeServer(tmp_path, otlp_endpoint=f"http://{processes.LOOPBACK}:{port}")
    assert server.is_answering()
    status, log = server.stop()
    assert (status, "Traceback" in log) == (0, False)
    assert log.endswith("stopped\n")
