"""The fast path answers as uvicorn would, and does not delay other requests."""

import asyncio
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from server.admission import latency_tracker
from server.admission.admission import AdmissionController
from server.admission.api_keys import ApiKeys
from server.config.settings import Settings
from server.dataplane import DataPlane
from server.frontends.rest.app import build_rest_app
from server.frontends.rest.dispatch.dispatcher import Dispatcher
from server.frontends.rest.rest_config import RestConfig
from server.frontends.rest.transport.timeout_protocol import ConnectionTimeouts
from server.frontends.rest.v1_router import V1Router
from server.metrics import Metrics
from server.parsing.request_parser import RequestParser
from tests.server.fakes import FakeLoader
from tests.server.frontends.rest.conftest import Serve
from tests.server.frontends.rest.wire import Address, ask, send

PREDICT = "/v1/models/half:predict"
BODY = b'{"inputs": 2}'
ANSWER = b'{\n    "outputs": 3.0\n}'
SETTINGS: dict[str, Any] = {"model_base_path": Path("/models/half")}
HEAD = b"POST /v1/models/half:predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s\r\n"
REQUEST = HEAD % (len(BODY), b"") + BODY
LAST = HEAD % (len(BODY), b"Connection: close\r\n") + BODY


@pytest.fixture
def slow_path(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the paths that the fast path did not answer, on any busy machine."""
    for name, seconds in (("_QUICK_SECONDS", 0.5), ("_VERY_SLOW_SECONDS", 1)):
        monkeypatch.setattr(latency_tracker, name, seconds)
    paths: list[str] = []
    dispatch = Dispatcher.dispatch

    async def recording_dispatch(self: Dispatcher, path: str, *args: Any) -> Any:
        paths.append(path)
        return await dispatch(self, path, *args)

    monkeypatch.setattr(Dispatcher, "dispatch", recording_dispatch)
    return paths


def warm_up(address: Address, headers: dict[str, str] | None = None) -> None:
    """Send so many requests that the server considers the route quick."""
    for _ in range(20):
        assert ask(address, "POST", PREDICT, BODY, headers)[1] == ANSWER


@pytest.fixture
def address(dataplane: DataPlane, serve: Serve, slow_path: list[str]) -> Address:
    address = serve(build_rest_app(dataplane))
    warm_up(address)
    slow_path.clear()
    return address


def test_answer_is_that_of_uvicorn(address: Address, slow_path: list[str]) -> None:
    fast, body = ask(address, "POST", PREDICT, BODY)
    assert slow_path == []
    slow, same_body = ask(address, "POST", PREDICT, BODY, {"Connection": "close"})
    assert slow_path == [PREDICT]
    assert body == same_body == ANSWER
    expected = [header for header in slow.getheaders() if header[0] not in ("date", "connection")]
    assert [header for header in fast.getheaders() if header[0] != "date"] == expected
    assert fast.getheader("date")


@pytest.mark.parametrize(
    "requests",
    [REQUEST * 3 + LAST, REQUEST * 50 + LAST],
    ids=["few", "more than have their turn at once"],
)
def test_requests_sent_in_a_row_are_answered_in_order(address: Address, requests: bytes) -> None:
    other = HEAD % (13, b"") + b'{"inputs": 4}'
    replies = send(address, other + requests)
    assert replies.count(b"HTTP/1.1 200 OK") == 1 + requests.count(b"POST")
    assert replies.index(b'"outputs": 4.0') < replies.index(b'"outputs": 3.0')


def test_body_may_come_in_pieces(address: Address, slow_path: list[str]) -> None:
    with socket.create_connection(address, timeout=30) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in (REQUEST[:20], REQUEST[20:-9], REQUEST[-9:-1], REQUEST[-1:]):
            client.sendall(piece)
            ask(address, "GET", "/healthz")  # the server has read the piece by now
        assert client.recv(65536).endswith(ANSWER)
    assert slow_path == []


@pytest.mark.parametrize(
    "data",
    [
        HEAD % (6000, b"") + BODY + b" " * (6000 - len(BODY)) + LAST,
        HEAD % (len(BODY), b"Expect: 100-continue\r\n") + BODY + LAST,
        LAST.replace(b"HTTP/1.1", b"HTTP/1.0"),
        LAST,
    ],
    ids=["large", "expects", "old", "last"],
)
def test_unusual_requests_are_left_to_uvicorn(
    address: Address, slow_path: list[str], data: bytes
) -> None:
    with socket.create_connection(address, timeout=30) as client:
        client.sendall(data)
        received = b""
        while ANSWER not in received:
            received += client.recv(65536)
    assert slow_path[0] == PREDICT


def test_number_of_remembered_paths_is_bounded(dataplane: DataPlane) -> None:
    dispatcher = Dispatcher([V1Router(dataplane, RequestParser())], RestConfig())
    for number in range(3000):
        letters = "".join(f"%{ord(digit) ^ 1:02x}" for digit in f"{number:04}")
        assert dispatcher.find_fast_path(f"/v1/models/{letters}:predict".encode()) is None
    assert len(dispatcher._fast_paths) <= 1024 >= len(dispatcher._trackers)
    dispatcher.close()


def test_nothing_is_stored_for_long_paths(dataplane: DataPlane) -> None:
    dispatcher = Dispatcher([V1Router(dataplane, RequestParser())], RestConfig())
    path = f"/v1/models/{'x' * 60_000}:predict"
    assert dispatcher.find_fast_path(path.encode()) is None
    scope: dict[str, Any] = {"method": "POST", "headers": [], "client": None}
    messages = iter([{"type": "http.request", "body": BODY}])

    async def receive() -> dict[str, Any]:
        # The client waits for the answer.
        return next(messages, {}) or await asyncio.Future()

    assert asyncio.run(dispatcher.dispatch(path, scope, receive)).status == 404
    assert not dispatcher._fast_paths
    assert not dispatcher._trackers
    dispatcher.close()


def test_chunked_body_is_read(address: Address, slow_path: list[str]) -> None:
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" % PREDICT.encode()
    with socket.create_connection(address, timeout=30) as client:
        client.sendall(head + b"d\r\n" + BODY + b"\r\n0\r\n\r\n")
        assert client.recv(65536).endswith(ANSWER)
    assert slow_path == []


def test_connection_continues_after_an_error(address: Address) -> None:
    wrong = HEAD % (2, b"") + b"{]"
    replies = send(address, wrong + REQUEST + LAST)
    assert replies.startswith(b"HTTP/1.1 400")
    assert replies.count(b"HTTP/1.1 200") == 2


def test_client_that_disconnects_within_a_request_does_no_harm(address: Address) -> None:
    for _ in range(3):
        with socket.create_connection(address, timeout=30) as client:
            client.sendall(REQUEST[:-3])
    assert ask(address, "POST", PREDICT, BODY)[1] == ANSWER


@pytest.mark.slow
def test_idle_connection_is_closed_after_the_keep_alive_timeout(
    dataplane: DataPlane, serve: Serve
) -> None:
    address = serve(build_rest_app(dataplane), ConnectionTimeouts(headers_seconds=0.2))
    warm_up(address)
    with socket.create_connection(address, timeout=30) as client:
        client.sendall(REQUEST)
        received = client.recv(65536)
        assert received.endswith(ANSWER)
        # The keep-alive timeout of 5 s applies, not the timeout of 0.2 s for the head of a request.
        client.settimeout(1)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(30)
        assert client.recv(1) == b""


def test_keys_admission_origins_metrics_and_log_apply_to_the_fast_path(
    dataplane: DataPlane,
    serve: Serve,
    tmp_path: Path,
    slow_path: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "server.access")
    (tmp_path / "keys").write_text("sesame\n")
    settings = Settings(**SETTINGS, access_log=True, rest_api_enable_cors_support=True)
    metrics, admission, keys = Metrics(), AdmissionController(1), ApiKeys(tmp_path / "keys")
    address = serve(
        build_rest_app(dataplane, settings, metrics=metrics, admission=admission, keys=keys)
    )
    right = {"Authorization": "Bearer sesame"}
    warm_up(address, right)
    slow_path.clear()
    caplog.clear()
    reply, _ = ask(address, "POST", PREDICT, BODY, right)
    assert reply.getheader("access-control-allow-origin") == "*"
    assert ask(address, "POST", PREDICT, BODY)[0].status == 401
    admission.acquire()
    assert ask(address, "POST", PREDICT, BODY, right)[0].status == 429
    admission.release()
    assert slow_path == []
    admission.drain()
    assert ask(address, "POST", PREDICT, BODY, right)[0].status == 503
    while len(caplog.records) < 4:  # Without the fast path, a request is logged after the response.
        time.sleep(0.01)
    lines = [json.loads(record.getMessage()) for record in caplog.records]
    assert [line["status"] for line in lines] == [200, 401, 429, 503]
    assert (lines[0]["version"], lines[0]["signature"]) == (3, "serving_default")
    assert b'request_count{model_name="half",status="UNAVAILABLE"} 1' in metrics.exposition()


def test_route_that_became_slow_runs_in_threads(
    address: Address, loader: FakeLoader, slow_path: list[str]
) -> None:
    model = loader.models[3]
    model.has_begun.clear()
    model.gate.clear()
    with ThreadPoolExecutor() as pool:
        first = pool.submit(ask, address, "POST", PREDICT, BODY)
        assert model.has_begun.wait(10)
        threading.Timer(1.2, model.gate.set).start()
        first.result()
    assert slow_path == []
    model.has_begun.clear()
    model.gate.clear()
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(ask, address, "POST", PREDICT, BODY)
        assert model.has_begun.wait(10)
        assert ask(address, "GET", "/healthz")[0].status == 200
        model.gate.set()
        assert slow.result()[1] == ANSWER
    assert slow_path == [PREDICT]
