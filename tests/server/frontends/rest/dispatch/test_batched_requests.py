"""Batched requests take the fast path if they do not block, and never delay other requests."""

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from server.batching.factory import BatchingRunnerFactory
from server.config.batching_parameters import BatchingParameters
from server.config.settings import Settings
from server.dataplane import DataPlane
from server.frontends.rest.app import build_rest_app
from server.models.manager import Manager
from server.scheduling.request_queues import RequestQueues
from server.scheduling.run_limits import RunLimits
from tests.server.aspired_versions import aspire
from tests.server.fakes import FakeLoader
from tests.server.frontends.rest.conftest import Serve
from tests.server.frontends.rest.transport.test_fast_path_protocol import slow_path as slow_path
from tests.server.frontends.rest.wire import Address, ask

PREDICT = "/v1/models/half:predict"
BODY = b'{"instances": [2]}'
ANSWER = b'{\n    "predictions": [3.0\n    ]\n}'


def serve_batched(
    loader: FakeLoader, serve: Serve, timeout_micros: int = 0
) -> tuple[Address, BatchingRunnerFactory]:
    parameters = BatchingParameters(num_batch_threads=1, batch_timeout_micros=timeout_micros)
    runners = BatchingRunnerFactory(parameters)
    manager = Manager(loader, make_runner=runners.wrap)
    aspire(manager, "half", {3: Path("/models/half/3")})
    aspire(manager, "other", {4: Path("/models/other/4")})
    queues = RequestQueues(lambda model: RunLimits(max_concurrent_runs=128, only_waits=True))
    settings = Settings(Path("/models/half"), enable_batching=True)
    return serve(build_rest_app(DataPlane(manager), settings, queues=queues)), runners


def send_requests(address: Address, times: int) -> None:
    for _ in range(times):
        assert ask(address, "POST", PREDICT, BODY)[1] == ANSWER


def test_batch_that_is_due_at_once_needs_no_thread(
    loader: FakeLoader, serve: Serve, slow_path: list[str]
) -> None:
    address, _ = serve_batched(loader, serve)
    send_requests(address, 20)
    slow_path.clear()
    send_requests(address, 5)
    assert slow_path == []


def test_requests_that_wait_for_a_batch_need_no_thread(
    loader: FakeLoader, serve: Serve, slow_path: list[str]
) -> None:
    address, _ = serve_batched(loader, serve, timeout_micros=10)
    send_requests(address, 20)
    slow_path.clear()
    send_requests(address, 100)
    assert slow_path == []


def test_body_of_50_kilobytes_that_waits_for_a_batch_needs_no_thread(
    loader: FakeLoader, serve: Serve, slow_path: list[str]
) -> None:
    address, _ = serve_batched(loader, serve, timeout_micros=10)
    two = b"2." + b"0" * 48
    body = b'{"instances": [%s]}' % b", ".join([two] * 960)
    assert ask(address, "POST", PREDICT, body)[1].count(b"3.0") == 960
    assert slow_path == []


def test_pipelined_requests_that_wait_are_answered_in_their_order(
    loader: FakeLoader, serve: Serve, slow_path: list[str]
) -> None:
    address, _ = serve_batched(loader, serve, timeout_micros=10)
    send_requests(address, 20)
    slow_path.clear()
    requests = b"".join(
        b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s"
        % (PREDICT.encode(), len(body), body)
        for body in (b'{"instances": [%d]}' % number for number in (2, 4, 6))
    )
    with socket.create_connection(address, timeout=30) as connection:
        connection.sendall(requests)
        received = b""
        while received.count(b"predictions") < 3 or not received.endswith(b"}"):
            received += connection.recv(65536)
    values = [float(part.split(b"[")[1].split()[0]) for part in received.split(b"predictions")[1:]]
    assert values == [3.0, 4.0, 5.0]
    # The first request takes the fast path, and uvicorn queues those that follow it.
    assert slow_path == [PREDICT] * 2


def test_batch_of_another_model_delays_no_request(
    loader: FakeLoader, serve: Serve, slow_path: list[str]
) -> None:
    (address, _), other = serve_batched(loader, serve), loader.models[4]
    send_requests(address, 20)
    slow_path.clear()
    other.gate.clear()
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(ask, address, "POST", "/v1/models/other:predict", BODY)
        assert other.has_begun.wait(10)
        send_requests(address, 5)
        assert ask(address, "GET", "/healthz")[0].status == 200
        other.gate.set()
        assert slow.result()[1] == ANSWER
