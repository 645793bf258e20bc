"""A process of the server that dies is replaced, and the other processes continue."""

import contextlib
import errno
import itertools
import os
import resource
import signal
import tempfile
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import grpc
import httpx
import pytest

from server.config.settings import Settings
from server.multiprocess.supervisor import Supervisor
from tests.processes import LOOPBACK, free_ports
from tests.server.multiprocess.fake_server import (
    DEADLY,
    GOOD,
    SECONDS,
    FakeServer,
    process_name,
    wait_until,
)
from tpuserve.errors import Unavailable

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeServer]:
    server = FakeServer(tmp_path)
    yield server
    server.kill()


@pytest.fixture
def socket_server(tmp_path: Path) -> Iterator[FakeServer]:
    """Yield a server with gRPC health checks and a UNIX socket."""
    # The path of a UNIX socket may have about 100 characters, so use a short directory.
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/socket"
        server = FakeServer(tmp_path, grpc_socket_path=path, enable_grpc_healthcheck_service=True)
        yield server
        server.kill()


@pytest.fixture(scope="module")
def calm_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    """Yield a server for the tests that kill no process."""
    server = FakeServer(tmp_path_factory.mktemp("calm"))
    yield server
    server.kill()


def answers(server: FakeServer) -> bool:
    """Return whether a server answers; no process listens while all frontends are replaced."""
    try:
        return server.is_answering()
    except httpx.TransportError:
        return False


@contextlib.contextmanager
def no_new_files(server: FakeServer) -> Iterator[None]:
    """Let the supervisor open no file, socket or pipe in a context."""
    before = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        yield
    finally:
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, before)


def test_engine_that_a_model_kills_is_started_again_while_the_frontends_answer(
    server: FakeServer,
) -> None:
    with httpx.Client(timeout=SECONDS) as client:
        assert client.post(server.predict_url, content=GOOD).json() == {"outputs": 3.0}
        died = client.post(server.predict_url, content=DEADLY)
        assert (died.status_code, died.headers.get("retry-after")) == (503, "1"), died.text
        refused = client.post(server.predict_url, content=GOOD)
        assert (refused.status_code, refused.headers.get("retry-after")) == (503, "1"), refused.text
        assert client.get(f"{server.url}/healthz").status_code == 200
        unready = client.get(f"{server.url}/readyz")
        assert unready.status_code == 503
        assert "started again" in unready.text or "no model is available" in unready.text
        wait_until(lambda: client.get(f"{server.url}/readyz").status_code == 200)
        assert client.post(server.predict_url, content=GOOD).json() == {"outputs": 3.0}
    assert server.count_requests() == 2
    status, log = server.stop()
    assert status == 0
    assert "the engine process has ended by SIGSEGV: starting it again in 0.5 s" in log


def test_grpc_is_unavailable_until_the_engine_runs_again(server: FakeServer) -> None:
    with grpc.insecure_channel(server.rpc) as channel:
        status = channel.unary_unary("/tensorflow.serving.ModelService/GetModelStatus")
        # The serialised GetModelStatusRequest of the model "half".
        request = b"\x0a\x06\x0a\x04half"
        assert b"\x10\x1e" in status(request)
        os.kill(server.find("tpuserve-engine"), signal.SIGKILL)

        def code() -> grpc.StatusCode:
            try:
                status(request)
            except grpc.RpcError as error:
                return error.code()
            return grpc.StatusCode.OK

        wait_until(lambda: code() is grpc.StatusCode.UNAVAILABLE)
        wait_until(lambda: code() is not grpc.StatusCode.UNAVAILABLE)
        assert code() is grpc.StatusCode.OK


def test_grpc_health_is_not_serving_until_the_engine_runs_again(socket_server: FakeServer) -> None:
    serving, not_serving = b"\x08\x01", b"\x08\x02"
    with grpc.insecure_channel(socket_server.rpc) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")
        answers = watch(b"", timeout=SECONDS)
        assert next(answers) == check(b"", timeout=SECONDS) == serving
        os.kill(socket_server.find("tpuserve-engine"), signal.SIGKILL)
        assert next(answers) == not_serving
        assert next(answers) == check(b"", timeout=SECONDS) == serving
        answers.cancel()


def test_socket_is_taken_over_when_its_frontend_is_replaced(socket_server: FakeServer) -> None:
    # The serialised GetModelStatusRequest of the model "half".
    method, request = "/tensorflow.serving.ModelService/GetModelStatus", b"\x0a\x06\x0a\x04half"
    with grpc.insecure_channel(f"unix:{socket_server.socket_path}") as channel:
        status = channel.unary_unary(method)
        assert b"\x10\x1e" in status(request, timeout=SECONDS)
        killed = socket_server.find("tpuserve-front0")
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: killed not in socket_server.children())
        assert b"\x10\x1e" in status(request, timeout=SECONDS, wait_for_ready=True)
        # Only the first frontend listens on the socket. A restart of the other frontend must not
        # take the socket away.
        other = socket_server.find("tpuserve-front1")
        os.kill(other, signal.SIGKILL)
        wait_until(lambda: other not in socket_server.children())
        wait_until(lambda: "tpuserve-front1" in socket_server.children().values())
        for _ in range(20):
            wait_until(socket_server.is_answering)
        assert b"\x10\x1e" in status(request, timeout=SECONDS)


def test_frontend_that_dies_is_replaced_and_the_other_one_answers_on(server: FakeServer) -> None:
    for _ in range(8):
        assert server.is_answering()
    before = server.count_requests()
    killed = server.find("tpuserve-front1")
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: killed not in server.children())
    assert server.is_answering()
    wait_until(lambda: "tpuserve-front1" in server.children().values())
    for _ in range(20):
        wait_until(server.is_answering)
    # The counters do not fall, although a process that had a part of the counts has died.
    assert server.count_requests() >= before
    assert server.stop()[0] == 0


def test_process_whose_start_fails_is_started_later_and_the_other_one_answers_on(
    server: FakeServer,
) -> None:
    with no_new_files(server):
        os.kill(server.find("tpuserve-front1"), signal.SIGKILL)
        wait_until(lambda: "the frontend 1 process cannot be started: " in server.log_text)
        assert server.is_answering()
    wait_until(lambda: "tpuserve-front1" in server.children().values())
    for _ in range(20):
        wait_until(server.is_answering)
    assert server.stop()[0] == 0


def test_frontends_that_cannot_be_connected_are_connected_later(
    server: FakeServer, tmp_path: Path
) -> None:
    # The new engine is ready when it finds a version, and not while the limit is set.
    (tmp_path / "models" / "3").rmdir()
    killed = server.find("tpuserve-engine")
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: killed not in server.children())
    wait_until(lambda: "tpuserve-engine" in server.children().values())
    with no_new_files(server):
        (tmp_path / "models" / "3").mkdir()
        wait_until(lambda: "the frontend 0 process cannot be connected: " in server.log_text)
    for _ in range(20):
        wait_until(lambda: answers(server))
    assert server.stop()[0] == 0


def test_start_whose_processes_cannot_be_started_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: BaseProcess) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(BaseProcess, "start", fail)
    rpc_port, rest_port = free_ports(2)
    settings = Settings(
        tmp_path, host=LOOPBACK, port=rpc_port, rest_api_port=rest_port, frontend_processes=1
    )
    supervisor = Supervisor(settings, None)
    with pytest.raises(Unavailable, match="the engine process cannot be started: .*Errno"):
        supervisor.start()
    assert supervisor.stop()


def test_page_of_metrics_is_the_same_whoever_serves_it(calm_server: FakeServer) -> None:
    for _ in range(24):
        assert calm_server.is_answering()
    # Each request has a new connection, so either frontend may answer it.
    assert {calm_server.count_requests() for _ in range(8)} == {24}


def test_no_process_outlives_the_supervisor(server: FakeServer) -> None:
    children = server.children()
    assert sorted(name for name in children.values() if name.startswith("tpuserve-")) == [
        "tpuserve-engine",
        "tpuserve-front0",
        "tpuserve-front1",
    ]
    server.kill()

    wait_until(lambda: not any(process_name(pid) == name for pid, name in children.items()))


def test_only_the_engine_may_have_tensorflow(calm_server: FakeServer) -> None:
    pids = itertools.chain([calm_server.pid], calm_server.children())
    for pid in pids:
        assert "libtensorflow" not in Path(f"/proc/{pid}/maps").read_text()
