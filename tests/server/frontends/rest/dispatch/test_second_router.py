"""A further REST API needs one registration, and gets all that the dispatcher does for /v1/.

The API of this test is like the Open Inference Protocol with binary tensors: the header
Inference-Header-Content-Length is the length of the JSON before the raw tensors.
"""

import gzip
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.admission import latency_tracker
from server.admission.admission import AdmissionController
from server.admission.api_keys import ApiKeys
from server.config.settings import Settings
from server.dataplane import DataPlane
from server.frontends.rest.app import build_rest_app
from server.frontends.rest.dispatch.dispatcher import Dispatcher
from server.frontends.rest.dispatch.router import Route
from server.frontends.rest.transport.responses import Headers, Response, get_header
from server.metrics import Metrics
from server.request import RequestContext
from tests.server.frontends.rest.conftest import Serve
from tests.server.frontends.rest.wire import Address, ask
from tpuserve.errors import InvalidInput

INFER = "/v3/models/sum/infer"
JSON_PART = b'{"inputs": [{"name": "x"}]}'
TENSOR = np.array([1.5, 2.0, -0.25], np.float32).tobytes()
BODY = JSON_PART + TENSOR
LENGTH = {"Inference-Header-Content-Length": str(len(JSON_PART))}
ANSWER = json.dumps({"x": 3.25}).encode()
SETTINGS: dict[str, Any] = {"model_base_path": Path("/models/half")}


class SumRouter:
    """Sums the floats behind the JSON of a request."""

    prefix = "/v3/"

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.has_begun = threading.Event()

    def parse_route(self, method: str, path: str) -> Route:
        if method == "GET" and path == "/v3/models/sum":
            return Route("sum", operation="metadata")
        if method == "POST" and path == INFER:
            return Route("sum", version=7, operation="infer", runs_model=True)
        raise InvalidInput(f"no such path: {method} {path}")

    def handle(
        self,
        route: Route,
        headers: Headers,
        body: bytes,
        context: RequestContext,
    ) -> Response:
        if not route.runs_model:
            return Response(200, b'{"name": "sum"}', model="sum")
        self.has_begun.set()
        assert self.gate.wait(30)
        length = get_header(headers, b"inference-header-content-length")
        if length is None:
            raise InvalidInput("Inference-Header-Content-Length is missing")
        name = json.loads(body[: int(length)])["inputs"][0]["name"]
        total = float(np.frombuffer(body[int(length) :], np.float32).sum())
        return Response(200, json.dumps({name: total}).encode(), model="sum", version=7)


@pytest.fixture
def router() -> Iterator[SumRouter]:
    router = SumRouter()
    yield router
    router.gate.set()


def infer(
    address: Address, body: bytes = BODY, headers: dict[str, str] = LENGTH
) -> tuple[int, bytes]:
    response, content = ask(address, "POST", INFER, body, headers)
    return response.status, content


def test_handler_gets_headers_and_raw_bytes(
    dataplane: DataPlane, serve: Serve, router: SumRouter
) -> None:
    address = serve(build_rest_app(dataplane, extra_routers=[router]))
    assert infer(address) == (200, ANSWER)
    assert infer(address, gzip.compress(BODY), {**LENGTH, "Content-Encoding": "gzip"})[1] == ANSWER
    assert ask(address, "GET", "/V3/models/sum")[0].status == 400
    assert ask(address, "GET", "/v3/models/sum")[1] == b'{"name": "sum"}'
    status, content = infer(address, headers={})
    assert (status, json.loads(content)["error"]) == (
        400,
        "Inference-Header-Content-Length is missing",
    )
    assert ask(address, "POST", "/v1/models/half:predict", b'{"inputs": 2}')[0].status == 200


def test_admission_and_limits_apply(dataplane: DataPlane, serve: Serve, router: SumRouter) -> None:
    settings = Settings(**SETTINGS, max_request_bytes=100, rest_api_timeout_in_ms=200)
    admission = AdmissionController(1)
    address = serve(
        build_rest_app(dataplane, settings, admission=admission, extra_routers=[router])
    )
    assert infer(address, BODY + bytes(100))[0] == 413
    admission.acquire()
    assert infer(address)[0] == 429
    admission.release()
    router.gate.clear()
    assert infer(address)[0] == 504
    # The request is in flight as long as its handler runs.
    assert admission.in_flight == 1
    router.gate.set()
    assert admission.wait_until_idle(10)
    admission.drain()
    response, _ = ask(address, "POST", INFER, BODY, LENGTH)
    assert (response.status, response.getheader("retry-after")) == (503, "1")


def test_keys_origins_access_log_and_metrics_apply(
    dataplane: DataPlane,
    serve: Serve,
    router: SumRouter,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "server.access")
    (tmp_path / "keys").write_text("sesame\n")
    settings = Settings(**SETTINGS, access_log=True, rest_api_enable_cors_support=True)
    metrics, keys = Metrics(), ApiKeys(tmp_path / "keys")
    address = serve(
        build_rest_app(dataplane, settings, metrics=metrics, keys=keys, extra_routers=[router])
    )
    assert infer(address)[0] == 401
    headers = {**LENGTH, "Authorization": "Bearer sesame"}
    response, content = ask(address, "POST", INFER, BODY, headers)
    assert (response.status, content) == (200, ANSWER)
    assert response.getheader("access-control-allow-origin") == "*"
    origin = {"Origin": "https://page.example"}
    assert ask(address, "OPTIONS", INFER, headers=origin)[0].status == 200
    lines = [json.loads(record.getMessage()) for record in caplog.records]
    assert [(line["path"], line["status"]) for line in lines[:2]] == [(INFER, 401), (INFER, 200)]
    assert (lines[1]["model"], lines[1]["version"]) == ("sum", 7)
    assert (lines[1]["bytes_in"], lines[1]["bytes_out"]) == (len(BODY), len(ANSWER))
    text = metrics.exposition()
    assert b'request_count{model_name="",status="UNAUTHENTICATED"} 1' in text
    assert b'request_count{model_name="sum",status="OK"} 1' in text
    assert b'request_latency_count{API="infer",entrypoint="REST",model_name="sum"} 1' in text


def test_quick_requests_take_the_fast_path(
    dataplane: DataPlane, serve: Serve, router: SumRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("_QUICK_SECONDS", 0.5), ("_VERY_SLOW_SECONDS", 1)):
        monkeypatch.setattr(latency_tracker, name, seconds)
    address = serve(build_rest_app(dataplane, extra_routers=[router]))
    for _ in range(20):
        assert infer(address) == (200, ANSWER)
    monkeypatch.setattr(Dispatcher, "dispatch", None)
    assert infer(address) == (200, ANSWER)


def test_paths_of_no_router_are_not_found(dataplane: DataPlane, serve: Serve) -> None:
    address = serve(build_rest_app(dataplane))
    assert infer(address)[0] == 404
