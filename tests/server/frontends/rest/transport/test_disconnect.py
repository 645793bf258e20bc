"""The work on a request ends when its client closes the connection, or the time is over."""

import contextlib
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from server.admission.admission import AdmissionController
from server.admission.cancellation import Cancellation
from server.admission.memory_budget import MemoryBudget
from server.config.settings import Settings
from server.dataplane import DataPlane
from server.frontends.rest.app import build_rest_app
from server.frontends.rest.dispatch.router import Route
from server.frontends.rest.transport.responses import Headers, Response
from server.request import RequestContext
from tests.server.frontends.rest.conftest import Serve
from tests.server.frontends.rest.wire import Address, ask, send
from tpuserve.errors import Cancelled

SETTINGS: dict[str, Any] = {"model_base_path": Path("/models/half")}
REQUEST = b"POST /v3/wait HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n" + b" " * 5000


class WaitingRouter:
    """Waits in each request until the request is cancelled or the test has ended."""

    prefix = "/v3/"

    def __init__(self) -> None:
        self.cancellations: queue.Queue[Cancellation] = queue.Queue()
        self.cancelled_flags: queue.Queue[bool] = queue.Queue()
        self.has_ended = threading.Event()

    def parse_route(self, method: str, path: str) -> Route:
        return Route("wait", operation="wait", runs_model=True)

    def handle(
        self,
        route: Route,
        headers: Headers,
        body: bytes,
        context: RequestContext,
    ) -> Response:
        cancellation = context.cancellation
        cancellation.add_callback(self.has_ended.set)
        self.cancellations.put(cancellation)
        assert self.has_ended.wait(30)
        self.cancelled_flags.put(cancellation.is_cancelled)
        if cancellation.is_cancelled:
            raise Cancelled("cancelled")
        return Response(200, b"done")


@pytest.fixture
def router() -> Iterator[WaitingRouter]:
    router = WaitingRouter()
    yield router
    router.has_ended.set()


def serve_router(serve: Serve, dataplane: DataPlane, router: WaitingRouter, **more: Any) -> Address:
    settings = Settings(**SETTINGS, **more.pop("settings", {}))
    return serve(build_rest_app(dataplane, settings, extra_routers=[router], **more))


def test_closed_connection_cancels_the_request_and_frees_what_it_holds(
    dataplane: DataPlane, serve: Serve, router: WaitingRouter
) -> None:
    admission, budget = AdmissionController(10), MemoryBudget(10**6)
    address = serve_router(serve, dataplane, router, admission=admission, memory_budget=budget)
    with socket.create_connection(address, timeout=30) as client:
        client.sendall(REQUEST)
        router.cancellations.get(timeout=30)
        assert (admission.in_flight, budget.reserved_bytes) == (1, 5000)
    assert router.cancelled_flags.get(timeout=30)
    assert admission.wait_until_idle(30)
    assert budget.reserved_bytes == 0


def test_client_that_only_stops_sending_gets_its_response(
    dataplane: DataPlane, serve: Serve, router: WaitingRouter
) -> None:
    address = serve_router(serve, dataplane, router)
    with socket.create_connection(address, timeout=30) as client:
        client.sendall(REQUEST)
        client.shutdown(socket.SHUT_WR)
        cancellation = router.cancellations.get(timeout=30)
        assert client.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert not cancellation.is_cancelled
        router.has_ended.set()
        assert client.recv(15) == b"HTTP/1.1 200 OK"


def test_time_limit_cancels_the_request(
    dataplane: DataPlane, serve: Serve, router: WaitingRouter
) -> None:
    settings = {"rest_api_timeout_in_ms": 0, "default_request_timeout_ms": 50}
    address = serve_router(serve, dataplane, router, settings=settings)
    reply, _ = ask(address, "POST", "/v3/wait", b" " * 5000)
    assert reply.status == 504
    assert router.cancelled_flags.get(timeout=30)


def test_request_of_a_closed_connection_leaves_the_queue_for_threads(
    dataplane: DataPlane, serve: Serve, router: WaitingRouter
) -> None:
    admission = AdmissionController(10)
    settings = {"rest_api_num_threads": 1}
    address = serve_router(serve, dataplane, router, admission=admission, settings=settings)
    with socket.create_connection(address, timeout=30) as first:
        first.sendall(REQUEST)
        router.cancellations.get(timeout=30)
        with socket.create_connection(address, timeout=30) as second:
            second.sendall(REQUEST)
            while admission.in_flight < 2:
                time.sleep(0.01)
        while admission.in_flight > 1:
            time.sleep(0.01)
        assert router.cancelled_flags.empty()
        router.has_ended.set()
        assert first.recv(15) == b"HTTP/1.1 200 OK"


def test_client_beyond_its_share_is_refused_and_another_is_answered(
    dataplane: DataPlane, serve: Serve, router: WaitingRouter
) -> None:
    admission = AdmissionController(10, 1)
    address = serve_router(serve, dataplane, router, admission=admission)
    with socket.create_connection(address, timeout=30) as first:
        first.sendall(REQUEST)
        router.cancellations.get(timeout=30)
        reply, body = ask(address, "POST", "/v3/wait", b"")
        assert (reply.status, reply.headers["retry-after"]) == (429, "1")
        assert b"1 requests of 127.0.0.1 are in flight" in body
        other = socket.create_connection(address, timeout=30, source_address=("127.0.0.2", 0))
        with other:
            other.sendall(REQUEST)
            router.cancellations.get(timeout=30)
        router.has_ended.set()


def find_children() -> set[int]:
    lists = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    return {int(pid) for pids in lists for pid in pids.split()}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_requests_and_probes_are_answered_while_a_large_body_is_parsed(
    dataplane: DataPlane, serve: Serve
) -> None:
    admission = AdmissionController(10)
    address = serve(build_rest_app(dataplane, Settings(**SETTINGS), admission=admission))
    large = b'{"inputs": 2%s}' % b" ".ljust(300_000)
    others = find_children()
    assert ask(address, "POST", "/v1/models/half:predict", large)[0].status == 200
    (parse_process,) = find_children() - others
    os.kill(parse_process, signal.SIGSTOP)
    with socket.create_connection(address, timeout=30) as client:
        head = b"POST /v1/models/half:predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
        client.sendall(head % len(large) + large)
        while not admission.in_flight:
            time.sleep(0.01)
        assert ask(address, "GET", "/healthz")[0].status == 200
        assert ask(address, "POST", "/v1/models/half:predict", b'{"inputs": 2}')[0].status == 200
    assert admission.wait_until_idle(30)
    assert ask(address, "POST", "/v1/models/half:predict", large)[0].status == 200
    assert parse_process not in find_children()


def test_draining_server_refuses_a_request_before_its_body_and_closes_the_connection(
    dataplane: DataPlane, serve: Serve
) -> None:
    admission = AdmissionController(10)
    admission.mark_ready()
    address = serve(build_rest_app(dataplane, Settings(**SETTINGS), admission=admission))
    for _ in range(20):  # Let the route take the fast path.
        assert ask(address, "POST", "/v1/models/half:predict", b'{"inputs": 2}')[0].status == 200
    admission.drain()
    head = b"POST /v1/models/half:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n"
    for data in (head, b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"):
        reply = send(address, data)
        assert reply.startswith(b"HTTP/1.1 503 ")
        assert b"connection: close\r\n" in reply.lower()


def test_client_without_a_key_is_refused_before_its_body(
    dataplane: DataPlane, serve: Serve, tmp_path: Path
) -> None:
    from server.admission.api_keys import ApiKeys

    (tmp_path / "keys").write_text("secret\n")
    keys = ApiKeys(tmp_path / "keys")
    address = serve(build_rest_app(dataplane, Settings(**SETTINGS), keys=keys))
    authorization = {"Authorization": "Bearer secret"}
    for _ in range(20):  # Let the route take the fast path.
        reply, _ = ask(address, "POST", "/v1/models/half:predict", b'{"inputs": 2}', authorization)
        assert reply.status == 200
    with socket.create_connection(address, timeout=30) as client:
        client.sendall(
            b"POST /v1/models/half:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n"
        )
        assert client.recv(12) == b"HTTP/1.1 401"


def test_invalid_request_is_logged_with_its_client(
    dataplane: DataPlane, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    address = serve(build_rest_app(dataplane, Settings(**SETTINGS)))
    with socket.create_connection(address, timeout=30) as client:
        client.sendall(b"nonsense\r\n\r\n")
        with contextlib.suppress(OSError):
            while client.recv(65536):
                pass
        host, port = client.getsockname()
    assert f"{host}:{port} - Invalid HTTP request received." in caplog.messages
