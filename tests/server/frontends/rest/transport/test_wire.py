"""Requests are bounded in size and time, and later requests are answered."""

import gzip
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from server.admission.admission import AdmissionController
from server.config.settings import Settings
from server.dataplane import DataPlane
from server.frontends.rest.app import build_rest_app
from server.frontends.rest.transport.timeout_protocol import ConnectionTimeouts
from tests.server.fakes import FakeLoader
from tests.server.frontends.rest.conftest import Serve
from tests.server.frontends.rest.wire import Address, ask, send

PREDICT = "/v1/models/half:predict"
BODY = b'{"inputs": 2}'
ANSWER = b'{\n    "outputs": 3.0\n}'
SETTINGS: dict[str, Any] = {"model_base_path": Path("/models/half")}
GZIP = {"Content-Encoding": "gzip"}


def check_served(address: Address) -> None:
    reply, body = ask(address, "POST", PREDICT, BODY)
    assert (reply.status, body) == (200, ANSWER)


@pytest.fixture
def address(dataplane: DataPlane, serve: Serve) -> Address:
    return serve(build_rest_app(dataplane))


@pytest.mark.parametrize(
    ("method", "path", "status", "error"),
    [
        ("POST", "/v1/models/a%2Fb:predict", 404, "Servable not found for request: Latest(a/b)"),
        ("POST", "/V1/Models/half/Versions/3:predict", 200, None),
        ("POST", "/v1/models/half:Predict", 400, "Malformed request: POST /v1/models/half:Predict"),
        (
            "POST",
            "/v1/models/half:predict?x=1",
            400,
            "Malformed request: POST /v1/models/half:predict?x=1",
        ),
        ("GET", "/v1/models/%68alf", 200, None),
        ("GET", "/v1/models/half/labels/a%2Fb", 200, None),
        ("GET", "/v1/models/half?x=1", 404, "Could not find any versions of model half?x=1"),
        (
            "GET",
            "/v1/models/../models/half",
            400,
            "Malformed request: GET /v1/models/../models/half",
        ),
        ("GET", "/v1/models/half/", 400, "Malformed request: GET /v1/models/half/"),
        ("PURGE", "/v1/models/half", 400, "Malformed request: PURGE /v1/models/half"),
    ],
)
def test_path_is_parsed_as_sent(
    address: Address, method: str, path: str, status: int, error: str | None
) -> None:
    reply, body = ask(address, method, path, BODY)
    assert reply.status == status
    if error is not None:
        assert json.loads(body) == {"error": error}
        assert body == b'{\n    "error": "%s"\n}' % error.encode()


def test_content_type_of_a_request_is_ignored(address: Address) -> None:
    for name in ("text/plain", "image/png"):
        reply, body = ask(address, "POST", PREDICT, BODY, {"Content-Type": name})
        assert (reply.status, body) == (200, ANSWER)


def test_gzip_body_is_decompressed(address: Address) -> None:
    reply, body = ask(address, "POST", PREDICT, gzip.compress(BODY, mtime=0), GZIP)
    assert (reply.status, body) == (200, ANSWER)


@pytest.mark.parametrize(
    "body",
    [
        BODY,
        gzip.compress(BODY, mtime=0)[:-1],
        gzip.compress(BODY, mtime=0)[:-5] + b"12345",
        gzip.compress(b'{"inputs": 2' + b" " * 100_000_000 + b"}", compresslevel=1),
        b"",
    ],
    ids=["plain", "cut short", "wrong sum", "bomb", "empty"],
)
def test_gzip_body_beyond_its_bound_counts_as_empty(address: Address, body: bytes) -> None:
    reply, answer = ask(address, "POST", PREDICT, body, GZIP)
    assert reply.status == 400
    assert json.loads(answer) == {"error": "JSON Parse error: The document is empty"}
    check_served(address)


@pytest.mark.parametrize("chunked", [False, True])
def test_body_beyond_its_bound_is_refused_before_it_is_complete(
    dataplane: DataPlane, serve: Serve, chunked: bool
) -> None:
    address = serve(build_rest_app(dataplane, Settings(**SETTINGS, max_request_bytes=1000)))
    with socket.create_connection(address, timeout=30) as client:
        size = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 1000000000"
        client.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n" % (PREDICT.encode(), size))
        if chunked:
            client.sendall(b"3e9\r\n" + b" " * 1001 + b"\r\n")
        # The head and the body may come in two parts.
        reply = b""
        while not reply.endswith(b"}") and (part := client.recv(65536)):
            reply += part
    assert reply.startswith(b"HTTP/1.1 413")
    assert b"more than 1000 bytes (--max_request_bytes)" in reply
    check_served(address)


def test_requests_beyond_the_bound_are_refused_and_those_in_flight_continue(
    dataplane: DataPlane, serve: Serve, loader: FakeLoader
) -> None:
    address = serve(build_rest_app(dataplane, admission=AdmissionController(1)))
    model = loader.models[3]
    model.gate.clear()
    with ThreadPoolExecutor() as pool:
        first = pool.submit(ask, address, "POST", PREDICT, BODY)
        assert model.has_begun.wait(10)
        reply, body = ask(address, "POST", PREDICT, BODY)
        assert (reply.status, reply.getheader("retry-after")) == (429, "1")
        assert "--max_requests_in_flight is 1" in json.loads(body)["error"]
        model.gate.set()
        assert first.result()[1] == ANSWER
    check_served(address)


def test_response_does_not_wait_longer_than_the_timeout(
    dataplane: DataPlane, serve: Serve, loader: FakeLoader
) -> None:
    admission = AdmissionController(10)
    address = serve(
        build_rest_app(
            dataplane, Settings(**SETTINGS, rest_api_timeout_in_ms=1000), admission=admission
        )
    )
    model = loader.models[3]
    model.gate.clear()
    reply, body = ask(address, "POST", PREDICT, BODY)
    assert reply.status == 504
    assert "the time limit of the request has passed" in json.loads(body)["error"]
    assert model.timeout_ms is not None
    assert 0 < model.timeout_ms <= 1000
    # The request counts as in flight until the model has run.
    assert admission.in_flight == 1
    model.gate.set()
    assert admission.wait_until_idle(10)
    check_served(address)


def test_request_that_times_out_in_the_queue_never_runs(
    dataplane: DataPlane, serve: Serve, loader: FakeLoader
) -> None:
    admission, model = AdmissionController(2), loader.models[3]
    settings = Settings(**SETTINGS, rest_api_num_threads=1, rest_api_timeout_in_ms=1000)
    address = serve(build_rest_app(dataplane, settings, admission=admission))
    model.gate.clear()
    with ThreadPoolExecutor() as pool:
        first = pool.submit(ask, address, "POST", PREDICT, BODY)
        assert model.has_begun.wait(10)
        model.has_begun.clear()
        assert ask(address, "POST", PREDICT, BODY)[0].status == 504
        assert first.result()[0].status == 504
        # Only the first request, whose model still runs, counts as in flight.
        assert admission.in_flight == 1
        model.gate.set()
        assert admission.wait_until_idle(10)
        assert not model.has_begun.is_set()
    check_served(address)


def test_time_in_the_queue_counts_against_the_timeout(
    dataplane: DataPlane, serve: Serve, loader: FakeLoader
) -> None:
    admission, model = AdmissionController(2), loader.models[3]
    settings = Settings(**SETTINGS, rest_api_num_threads=1, rest_api_timeout_in_ms=20_000)
    address = serve(build_rest_app(dataplane, settings, admission=admission))
    model.gate.clear()
    with ThreadPoolExecutor() as pool:
        futures = [pool.submit(ask, address, "POST", PREDICT, BODY) for _ in range(2)]
        while admission.in_flight < 2 and not futures[0].done():
            time.sleep(0.001)
        time.sleep(0.3)
        model.gate.set()
        assert [future.result()[1] for future in futures] == [ANSWER] * 2
    assert model.timeout_ms is not None
    assert model.timeout_ms < 19_900


def test_slow_model_does_not_delay_other_requests(address: Address, loader: FakeLoader) -> None:
    for _ in range(20):
        check_served(address)  # without the gate so quick that the event loop would run it
    model = loader.models[3]
    with ThreadPoolExecutor() as pool:
        model.gate.clear()
        model.has_begun.clear()
        slow = pool.submit(ask, address, "POST", PREDICT, BODY + b" " * 5000)
        assert model.has_begun.wait(10)
        assert ask(address, "GET", "/healthz")[0].status == 200
        model.gate.set()
        assert slow.result()[0].status == 200


IMPATIENT = ConnectionTimeouts(
    headers_seconds=0.2, idle_seconds=0.2, body_seconds=0.6, max_header_bytes=4096
)


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"POST /v1/models/half:pre",
        b"POST /v1/models/half:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n",
        b"POST /v1/models/half:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{",
    ],
    ids=["nothing", "half a line", "half a head", "half a body"],
)
def test_connection_of_a_client_that_stalls_is_closed(
    dataplane: DataPlane, serve: Serve, begun: bytes
) -> None:
    address = serve(build_rest_app(dataplane), IMPATIENT)
    with socket.create_connection(address, timeout=30) as client:
        client.sendall(begun)
        assert hung_up(client)
    check_served(address)


def test_connection_of_a_client_that_sends_too_slowly_is_closed(
    dataplane: DataPlane, serve: Serve
) -> None:
    address = serve(build_rest_app(dataplane), IMPATIENT)
    stop = threading.Event()
    with socket.create_connection(address, timeout=30) as client:
        head = b"POST /v1/models/half:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n"
        client.sendall(head)

        def drip() -> None:
            while not stop.wait(0.02):
                try:
                    client.sendall(b" ")
                except OSError:
                    return

        thread = threading.Thread(target=drip)
        thread.start()
        assert hung_up(client)
        stop.set()
        thread.join()
    check_served(address)


def hung_up(client: socket.socket) -> bool:
    """Return whether the server closes a connection in time, without a response."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_model_may_take_longer_than_the_client_timeouts(
    dataplane: DataPlane, serve: Serve, loader: FakeLoader
) -> None:
    address = serve(build_rest_app(dataplane), IMPATIENT)
    model = loader.models[3]
    model.gate.clear()
    threading.Timer(0.7, model.gate.set).start()
    check_served(address)


def test_connection_with_an_endless_head_is_closed(dataplane: DataPlane, serve: Serve) -> None:
    address = serve(build_rest_app(dataplane), IMPATIENT)
    with socket.create_connection(address, timeout=30) as client:
        try:
            client.sendall(b"GET / HTTP/1.1\r\n" + b"X-Padding: " + b"x" * 20_000_000)
            ended = hung_up(client)
        except (BrokenPipeError, ConnectionResetError):
            ended = True
    assert ended
    check_served(address)


def test_many_stalled_connections_leave_room_for_another(address: Address) -> None:
    clients = [socket.create_connection(address, timeout=30) for _ in range(100)]
    try:
        for client in clients:
            client.sendall(b"POST /v1/models/half:predict HTTP/1.1\r\nContent-Length: 99\r\n\r\n{")
        check_served(address)
    finally:
        for client in clients:
            client.close()


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\xff\r\n\r\n",
        b"GET /v1/models/half HTTP/9.9\r\n\r\n",
        b"GET /v1/models/\xff HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"POST /v1/models/half:predict HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/models/half:predict HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    ],
)
def test_data_other_than_http_is_refused_with_400(address: Address, data: bytes) -> None:
    assert send(address, data).startswith(b"HTTP/1.1 400")
    check_served(address)
