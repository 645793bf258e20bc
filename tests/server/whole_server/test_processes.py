"""Several servers behind the same ports (--processes) look like one to their clients."""

import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests import processes
from tests.server.frontends.grpc import clients
from tests.server.whole_server.fake_server import (
    DEADLY,
    GOOD,
    SECONDS,
    SLOW,
    FakeServer,
    wait_until,
)

pytestmark = pytest.mark.slow


def workers(server: FakeServer) -> list[int]:
    """Return the IDs of the processes that serve."""
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in server.children()}
    return [pid for pid, command in commands.items() if b"spawn_main" in command]


def count_listeners(server: FakeServer) -> int:
    """Return how many sockets listen on the REST port."""
    port = f":{int(server.url.rpartition(':')[2]):04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    return sum(fields[1].endswith(port) and fields[3] == "0A" for fields in lines)


def post(server: FakeServer, body: str = GOOD) -> int:
    return httpx.post(server.predict_url, content=body, timeout=SECONDS).status_code


def check_line(server: FakeServer, line: str, connections: int = 20) -> None:
    """Check that the metrics have a line, in connections that reach both processes."""
    urls = [f"{server.url}/metrics"] * connections
    pages = [httpx.get(url, timeout=SECONDS).text for url in urls]
    for page in pages:
        assert line in page.splitlines()


def count_in_flight(server: FakeServer) -> int:
    page = httpx.get(f"{server.url}/metrics", timeout=SECONDS).text
    (number,) = re.findall(r"^tpuserve_requests_in_flight (\d+)$", page, re.MULTILINE)
    return int(number)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    """Return a server of two processes, which the last test of this file stops."""
    server = FakeServer(tmp_path_factory.mktemp("processes"), processes=2)
    yield server
    server.kill()


def test_processes_share_the_ports_and_the_metrics(server: FakeServer) -> None:
    assert {post(server) for _ in range(30)} == {200}
    for _ in range(5):
        with clients.connect(server.rpc) as client:
            client.predict(x=[2.0])
    count = ':tensorflow:serving:request_count{model_name="half",status="OK"} 35'
    check_line(server, count)
    state = 'tpuserve_version_state{model_name="half",state="AVAILABLE",version="3"} 1'
    check_line(server, state)
    check_line(server, 'tpuserve_queue_size{model_name="half"} 0')


def test_a_process_that_ends_is_replaced_and_its_counts_stay(server: FakeServer) -> None:
    for _ in range(20):
        assert post(server) == 200
    before = workers(server)
    with pytest.raises(httpx.HTTPError):
        post(server, DEADLY)
    wait_until(lambda: "has ended by SIGSEGV: starting it again in 0.5 s" in server.log_text)
    # Until the new process can answer, the other one gets all connections.
    assert count_listeners(server) == 1
    while count_listeners(server) < 2:
        assert post(server) == 200
    assert len(set(before) & set(workers(server))) == 1
    assert {post(server) for _ in range(20)} == {200}
    pattern = r'request_count{model_name="half",status="OK"} (\d+)'
    page = httpx.get(f"{server.url}/metrics", timeout=SECONDS).text
    (count,) = re.findall(pattern, page)
    assert int(count) >= 40


def test_sigterm_drains_all_processes_and_loses_no_request(server: FakeServer) -> None:
    pids = workers(server)
    with ThreadPoolExecutor(16) as threads:
        # Then both processes know that the model is slow, and run it in threads.
        assert set(threads.map(lambda _: post(server, SLOW), range(16))) == {200}
        replies = [threads.submit(post, server, SLOW) for _ in range(16)]
        wait_until(lambda: count_in_flight(server) == 16)
        status, log = server.stop()
    assert {reply.result() for reply in replies} == {200}
    assert (status, "Traceback" in log) == (0, False)
    assert log.endswith("stopped\n")
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_processes_end_with_the_supervisor(tmp_path: Path) -> None:
    server = FakeServer(tmp_path, processes=2)
    pids = workers(server)
    server.kill()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def test_a_taken_port_ends_the_start(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((processes.LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(AssertionError, match=f"--rest_api_port is {port}, and another"):
            FakeServer(tmp_path, processes=2, rest_api_port=port)


def test_a_model_that_cannot_be_loaded_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="VersionNotFound"):
        FakeServer(
            tmp_path,
            processes=2,
            model_base_path=str(tmp_path),
            fail_if_no_model_versions_found=True,
        )
