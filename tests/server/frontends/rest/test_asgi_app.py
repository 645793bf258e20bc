"""API keys, health, metrics, CORS, the access log and unknown paths."""

import gzip
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from server.admission.admission import AdmissionController
from server.admission.api_keys import ApiKeys
from server.config.settings import Settings
from server.dataplane import DataPlane
from server.frontends.rest.app import build_rest_app
from server.frontends.rest.openapi import paths as openapi_paths
from server.metrics import Metrics
from server.models.manager import Manager
from tests.server.aspired_versions import aspire
from tests.server.frontends.rest.conftest import Serve
from tests.server.frontends.rest.wire import ask

PREDICT = "/v1/models/half:predict"
BODY = b'{"inputs": 2}'
ANSWER = b'{\n    "outputs": 3.0\n}'
SCRIPT = "/docs/static/page.js"
METRICS = "/monitoring/prometheus/metrics"
SETTINGS: dict[str, Any] = {"model_base_path": Path("/models/half")}


def test_unknown_paths_get_the_page_of_libevent(dataplane: DataPlane, serve: Serve) -> None:
    address = serve(build_rest_app(dataplane))
    for path in ("/console", "/v3/models/half", "/v1", METRICS, "/healthz/x"):
        reply, body = ask(address, "GET", path)
        assert (reply.status, reply.getheader("content-type")) == (404, "text/html")
        assert b"<TITLE>404 Not Found</TITLE>" in body


@pytest.mark.parametrize(
    ("origin", "status"),
    [("https://page.example", 200), ("http://page.example", 200), ("null", 400), (None, 400)],
)
def test_preflight_succeeds_for_web_origins(
    dataplane: DataPlane, serve: Serve, origin: str | None, status: int
) -> None:
    headers, metrics = {} if origin is None else {"Origin": origin}, Metrics()
    address = serve(build_rest_app(dataplane, metrics=metrics))
    reply, body = ask(address, "OPTIONS", PREDICT, headers=headers)
    assert (reply.status, body) == (status, b"")
    assert reply.getheader("access-control-allow-origin") is None
    code = b"OK" if status == 200 else b"FAILED_PRECONDITION"
    assert b'request_count{model_name="",status="%s"} 1' % code in metrics.exposition()


def test_every_response_allows_all_origins_if_cors_is_enabled(
    dataplane: DataPlane, serve: Serve
) -> None:
    app = build_rest_app(dataplane, Settings(**SETTINGS, rest_api_enable_cors_support=True))
    address = serve(app)
    for method, path in (("POST", PREDICT), ("GET", "/v1/models/half"), ("GET", "/nothing")):
        reply, _ = ask(address, method, path, BODY)
        assert reply.getheader("access-control-allow-origin") == "*"
        assert reply.getheader("access-control-allow-methods") == "POST, GET"
        allowed = reply.getheader("access-control-allow-headers", "").split(", ")
        exposed = reply.getheader("access-control-expose-headers", "").split(", ")
        assert {"Content-Type", "Authorization", "Inference-Header-Content-Length"} <= {*allowed}
        assert {"Inference-Header-Content-Length", "Retry-After"} <= {*exposed}


def test_all_paths_but_the_open_ones_require_a_key(
    dataplane: DataPlane, serve: Serve, tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    file.write_text("sesame\n")
    settings = Settings(**SETTINGS, open_health=True)
    keys, metrics = ApiKeys(file), Metrics()
    app = build_rest_app(dataplane, settings, keys=keys, metrics=metrics, monitoring_path=METRICS)
    address = serve(app)
    for path in (PREDICT, "/v1/models", "/openapi.json", METRICS, "/nothing"):
        for header in (None, "Bearer other", "Basic sesame"):
            headers = {} if header is None else {"Authorization": header}
            reply, body = ask(address, "POST", path, BODY, headers)
            assert (reply.status, reply.getheader("www-authenticate")) == (401, "Bearer")
            assert "API key" in json.loads(body)["error"]
    assert ask(address, "GET", "/healthz")[0].status == 200
    origin = {"Origin": "https://page.example"}
    assert ask(address, "OPTIONS", PREDICT, headers=origin)[0].status == 200
    assert ask(address, "OPTIONS", "/openapi.json", headers=origin)[0].status == 401
    reply, body = ask(address, "POST", PREDICT, BODY, {"Authorization": "Bearer sesame"})
    assert (reply.status, body) == (200, ANSWER)


def test_docs_page_needs_no_key_and_its_document_does(
    dataplane: DataPlane, serve: Serve, tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    file.write_text("sesame\n")
    address = serve(build_rest_app(dataplane, keys=ApiKeys(file)))
    for path in openapi_paths.OPEN_PATHS:
        assert ask(address, "GET", path)[0].status == 200
    assert ask(address, "GET", "/docs/static/other")[0].status == 401
    _, body = ask(address, "GET", "/openapi.json", headers={"Authorization": "Bearer sesame"})
    described = json.loads(body)
    (name,) = described["components"]["securitySchemes"]
    assert described["components"]["securitySchemes"][name]["scheme"] == "bearer"
    assert described["security"] == [{name: []}]
    assert f'preauthorizeApiKey("{name}"'.encode() in ask(address, "GET", SCRIPT)[1]


def test_readiness_requires_an_available_model(
    dataplane: DataPlane, manager: Manager, serve: Serve
) -> None:
    address = serve(build_rest_app(dataplane))
    assert ask(address, "GET", "/readyz")[1] == b"ready\n"
    aspire(manager, "half", {})
    reply, body = ask(address, "GET", "/readyz")
    assert (reply.status, body) == (503, b"not ready: no model is available\n")


def test_readiness_turns_off_before_requests_are_refused(
    dataplane: DataPlane, serve: Serve
) -> None:
    admission = AdmissionController()
    address = serve(build_rest_app(dataplane, admission=admission))
    assert ask(address, "GET", "/readyz")[0].status == 503
    admission.mark_ready()
    assert ask(address, "GET", "/readyz")[0].status == 200
    admission.drain()
    assert ask(address, "GET", "/readyz")[0].status == 503
    assert ask(address, "GET", "/healthz")[0].status == 200
    reply, body = ask(address, "POST", PREDICT, BODY)
    assert (reply.status, reply.getheader("retry-after")) == (503, "1")
    assert "shutting down" in json.loads(body)["error"]


def test_metrics_are_always_served_at_the_path_of_prometheus(
    serve: Serve, dataplane: DataPlane
) -> None:
    address = serve(build_rest_app(dataplane, metrics=Metrics()))
    assert ask(address, "GET", "/metrics")[0].status == 200
    assert ask(address, "GET", METRICS)[0].status == 404


def test_metrics_are_served_at_their_paths_only(serve: Serve, dataplane: DataPlane) -> None:
    metrics = Metrics()
    address = serve(build_rest_app(dataplane, metrics=metrics, monitoring_path=METRICS))
    ask(address, "POST", PREDICT, b"no json")
    ask(address, "GET", "/v1/models/half")
    reply, body = ask(address, "GET", METRICS)
    assert (reply.status, reply.getheader("content-type")) == (
        200,
        "text/plain; version=0.0.4; charset=utf-8",
    )
    sample = b':tensorflow:serving:request_count{model_name="half",status="%s"} 1'
    assert sample % b"INVALID_ARGUMENT" in body
    assert sample % b"OK" in body


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("gzip, deflate", "gzip"),
        ("br;q=1.0, gzip;q=0.5", "gzip"),
        ("identity", None),
        ("gzip;q=0", None),
        ("gzip;q=0.0", None),
    ],
)
def test_metrics_are_compressed_for_who_accepts_it(
    serve: Serve, dataplane: DataPlane, accepted: str, encoding: str | None
) -> None:
    address = serve(build_rest_app(dataplane, metrics=Metrics()))
    reply, body = ask(address, "GET", "/metrics", headers={"Accept-Encoding": accepted})
    assert reply.getheader("content-encoding") == encoding
    assert b"tpuserve_queue_size" in (gzip.decompress(body) if encoding else body)


@pytest.mark.parametrize(
    ("path", "body", "headers", "model", "status"),
    [
        (PREDICT, b"corrupt", {"Content-Encoding": "gzip"}, "half", "INVALID_ARGUMENT"),
        (PREDICT, b'{"inputs": 2, "signature_name": "no"}', {}, "half", "INVALID_ARGUMENT"),
        ("/v1/models/half:classify", b'{"examples": []}', {}, "half", "INVALID_ARGUMENT"),
        ("/v1/models/half:no", b"", {}, "", "INVALID_ARGUMENT"),
        ("/v1/models/none:predict", BODY, {}, "none", "NOT_FOUND"),
        (PREDICT, b" " * 101, {}, "half", "RESOURCE_EXHAUSTED"),
    ],
)
def test_every_request_is_counted_once_with_its_status(
    serve: Serve,
    manager: Manager,
    path: str,
    body: bytes,
    headers: dict[str, str],
    model: str,
    status: str,
) -> None:
    metrics = Metrics()
    settings = Settings(**SETTINGS, max_request_bytes=100)
    address = serve(build_rest_app(DataPlane(manager, metrics=metrics), settings, metrics=metrics))
    reply, _ = ask(address, "POST", path, body, headers)
    assert reply.status == {"NOT_FOUND": 404, "RESOURCE_EXHAUSTED": 413}.get(status, 400)
    text = metrics.exposition().decode().splitlines()
    assert [line for line in text if ":request_count{" in line] == [
        f':tensorflow:serving:request_count{{model_name="{model}",status="{status}"}} 1'
    ]


def test_access_log_has_one_line_of_json_per_request(
    dataplane: DataPlane, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "server.access")
    address = serve(build_rest_app(dataplane, Settings(**SETTINGS, access_log=True)))
    ask(address, "POST", PREDICT, BODY)
    ask(address, "GET", "/v1/x%2Fy?z")
    # A line is written after its response was sent. After the next response it surely exists.
    ask(address, "GET", "/healthz")
    first, second = (json.loads(record.getMessage()) for record in caplog.records[:2])
    assert first.pop("duration_ms") > 0
    assert datetime.fromisoformat(first.pop("time")).tzinfo is not None
    assert first == {
        "protocol": "REST",
        "peer": "127.0.0.1",
        "method": "POST",
        "path": PREDICT,
        "model": "half",
        "version": 3,
        "signature": "serving_default",
        "status": 200,
        "bytes_in": len(BODY),
        "bytes_out": len(ANSWER),
    }
    assert (second["path"], second["status"]) == ("/v1/x%2Fy?z", 400)


@pytest.mark.parametrize("suffix", ["", "/", "?x=1", "/?name[]=x"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_probes_and_scrapes_may_have_a_query_or_a_slash(
    dataplane: DataPlane, serve: Serve, suffix: str, method: str, tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    file.write_text("sesame\n")
    settings = Settings(**SETTINGS, open_health=True, open_metrics=True)
    app = build_rest_app(
        dataplane,
        settings,
        metrics=Metrics(),
        monitoring_path=METRICS,
        keys=ApiKeys(file),
    )
    address = serve(app)
    for path in ("/healthz", "/readyz", "/metrics", METRICS, "/v2/health/live"):
        reply, body = ask(address, method, path + suffix)
        assert (reply.status, bool(body)) == (200, method == "GET"), path
