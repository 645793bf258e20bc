"""A process of the server that dies is replaced, and takes nothing else with it."""

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import httpx
import pytest

from tests import processes

pytestmark = pytest.mark.slow

LOOPBACK = processes.LOOPBACK
GOOD, DEADLY = '{"inputs": 2}', '{"inputs": 13}'
_SECONDS = 60


def wait_until(condition: Callable[[], bool]) -> None:
    """Returns once the condition holds; the limit only ends a test that hangs."""
    deadline = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.02)


class FakeServer:
    """A server of a fake model with two frontend processes."""

    def __init__(self, directory: Path) -> None:
        (directory / "models" / "3").mkdir(parents=True)
        config = directory / "monitoring.config"
        config.write_text("prometheus_config { enable: true }")
        rpc_port, rest_port = processes.free_ports(2)
        self.url = f"http://{LOOPBACK}:{rest_port}"
        self.predict_url = f"{self.url}/v1/models/half:predict"
        self.rpc = f"{LOOPBACK}:{rpc_port}"
        arguments = [directory / "models", rpc_port, rest_port, config]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.server.multiprocess.serve_fake", *map(str, arguments)],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if line.endswith(" ready\n"):
                return
        self.kill()
        raise AssertionError("not ready")

    @property
    def pid(self) -> int:
        return self._process.pid

    def children(self) -> dict[int, str]:
        """The names of its processes, by their numbers."""
        names = {}
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                names[int(child)] = Path(f"/proc/{child}/comm").read_text().strip()
        return names

    def find(self, name: str) -> int:
        (pid,) = [pid for pid, other in self.children().items() if other == name]
        return pid

    def is_answering(self) -> bool:
        return httpx.post(self.predict_url, content=GOOD).status_code == 200

    def count_requests(self) -> int:
        """The number of successful requests on the page of metrics."""
        page = httpx.get(f"{self.url}/monitoring/prometheus/metrics", timeout=_SECONDS).text
        pattern = r'^:tensorflow:serving:request_count{model_name="half",status="OK"} (\d+)$'
        return int(re.findall(pattern, page, re.MULTILINE)[0])

    def stop(self) -> tuple[int, str]:
        self._process.send_signal(signal.SIGTERM)
        _, said = self._process.communicate(timeout=_SECONDS)
        return self._process.returncode, said

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            self._process.communicate()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeServer]:
    server = FakeServer(tmp_path)
    yield server
    server.kill()


@pytest.fixture(scope="module")
def calm_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    """A server of which no test ends a process."""
    server = FakeServer(tmp_path_factory.mktemp("calm"))
    yield server
    server.kill()


def test_engine_that_a_model_kills_is_started_again_while_the_frontends_answer(
    server: FakeServer,
) -> None:
    with httpx.Client(timeout=_SECONDS) as client:
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
    status, said = server.stop()
    assert status == 0
    assert "the engine process has ended by SIGSEGV: starting it again in 0.5 s" in said


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
    # No counter falls, although a process with a part of the counts has gone.
    assert server.count_requests() >= before
    assert server.stop()[0] == 0


def test_page_of_metrics_is_the_same_whoever_serves_it(calm_server: FakeServer) -> None:
    for _ in range(24):
        assert calm_server.is_answering()
    # Each request has a connection of its own, and so may be served by either frontend.
    assert {calm_server.count_requests() for _ in range(8)} == {24}


def test_no_process_outlives_the_supervisor(server: FakeServer) -> None:
    children = server.children()
    assert sorted(name for name in children.values() if name.startswith("tpuserve-")) == [
        "tpuserve-engine",
        "tpuserve-front0",
        "tpuserve-front1",
    ]
    server.kill()

    def are_gone() -> bool:
        return not any(
            name == Path(f"/proc/{pid}/comm").read_text().strip()
            for pid, name in children.items()
            if Path(f"/proc/{pid}").exists()
        )

    wait_until(are_gone)


def test_only_the_engine_may_have_tensorflow(calm_server: FakeServer) -> None:
    pids = itertools.chain([calm_server.pid], calm_server.children())
    for pid in pids:
        assert "libtensorflow" not in Path(f"/proc/{pid}/maps").read_text()
