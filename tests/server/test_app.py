"""A server starts completely or not at all, and a signal stops it without losing a request."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from server.app import Server
from server.config.settings import Settings
from server.sample import digits
from tests import processes
from tests.server.fakes import FakeLoader
from tpuserve.errors import (
    Code,
    CodedError,
    InvalidConfig,
    InvalidSetting,
    LoweringError,
    ModelsNotAvailable,
    VersionNotFound,
)

LOOPBACK = processes.LOOPBACK


@pytest.fixture
def base_path(tmp_path: Path) -> Path:
    (tmp_path / "3").mkdir()
    return tmp_path


@pytest.fixture
def port() -> int:
    return processes.free_ports(1)[0]


def make_server(base_path: Path, port: int, loader: FakeLoader) -> Server:
    settings = Settings(base_path, "a/b", port=0, rest_api_port=port, host=LOOPBACK)
    return Server(settings, loader, on_failure=pytest.fail)


def test_started_server_answers_and_says_where(
    base_path: Path, port: int, loader: FakeLoader, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    server = make_server(base_path, port, loader)
    server.start()
    url = f"http://{LOOPBACK}:{port}/v1/models/a%2Fb"
    assert httpx.post(url + ":predict", content='{"inputs": 2}').json() == {"outputs": 3.0}
    assert f"REST API on {url}" in caplog.messages
    assert f"Exporting HTTP/REST API at:{LOOPBACK}:{port} ..." in caplog.messages
    server.stop()
    assert loader.models[3].is_closed


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
def test_address_of_ipv6_is_told_as_a_url_has_it(
    base_path: Path, port: int, loader: FakeLoader, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    settings = Settings(base_path, "a", port=0, rest_api_port=port, host="::1")
    server = Server(settings, loader, on_failure=pytest.fail)
    try:
        server.start()
    except InvalidSetting:
        pytest.skip("this machine has no address of IPv6")
    (line,) = [message for message in caplog.messages if message.startswith("REST API on ")]
    url = line.removeprefix("REST API on ")
    assert url == f"http://[::1]:{port}/v1/models/a"
    assert httpx.get(url).status_code == 200
    server.stop()


def test_port_in_use_is_told_before_the_model_is_loaded(
    base_path: Path, port: int, loader: FakeLoader
) -> None:
    with (
        socket.create_server((LOOPBACK, port)),
        pytest.raises(
            CodedError, match="rest_api_port", check=lambda error: error.code is Code.UNAVAILABLE
        ),
    ):
        make_server(base_path, port, loader).start()
    assert not loader.models


def test_keys_that_cannot_be_used_are_told_before_anything_is_loaded(
    base_path: Path, tmp_path: Path, port: int, loader: FakeLoader
) -> None:
    file = tmp_path / "ssl.config"
    pem = "-----BEGIN CERTIFICATE-----\\nno\\n-----END CERTIFICATE-----\\n"
    file.write_text(f'server_key: "{pem}" server_cert: "{pem}"')
    settings = Settings(base_path, port=port, rest_api_port=0, ssl_config_file=str(file))
    with pytest.raises(InvalidConfig, match="^--ssl_config_file: the key and certificates cannot"):
        Server(settings, loader, on_failure=pytest.fail)


def test_missing_model_is_waited_for_and_served_once_its_files_appear(
    tmp_path: Path, port: int, loader: FakeLoader, request: pytest.FixtureRequest
) -> None:
    base_path = tmp_path / "absent"
    settings = Settings(base_path, "a", 0, port, LOOPBACK, file_system_poll_wait_seconds=0.01)
    server = Server(settings, loader, on_failure=pytest.fail)
    request.addfinalizer(server.stop)
    url = f"http://{LOOPBACK}:{port}"
    with ThreadPoolExecutor() as pool:
        started = pool.submit(server.start)
        while not (text := text_of(f"{url}/readyz")).startswith(
            "not ready: the server is starting: waiting for a version of a: model base path "
        ):
            assert not started.done()
        assert f"{base_path} cannot be read: No such file or directory" in text
        assert httpx.get(f"{url}/v1/models/a").status_code == 503
        (base_path / "7").mkdir(parents=True)
        started.result(30)
    assert httpx.post(f"{url}/v1/models/a:predict", content='{"inputs": 2}').json() == {
        "outputs": 3.0
    }


def text_of(url: str) -> str:
    """Return the page at a URL; "" if the server does not listen yet."""
    try:
        return httpx.get(url).text
    except httpx.ConnectError:
        return ""


def test_missing_model_ends_the_start_where_the_flag_says_so(
    tmp_path: Path, port: int, loader: FakeLoader
) -> None:
    settings = Settings(
        tmp_path / "absent", "a", 0, port, LOOPBACK, fail_if_no_model_versions_found=True
    )
    with pytest.raises(VersionNotFound, match="^Unable to find a numerical version path for"):
        Server(settings, loader, on_failure=pytest.fail).start()


def test_model_that_cannot_be_loaded_is_told_with_the_reason(
    base_path: Path, port: int, loader: FakeLoader
) -> None:
    loader.failures[3] = LoweringError("no form on a CPU")
    with pytest.raises(ModelsNotAvailable, match="UNIMPLEMENTED: no form on a CPU"):
        make_server(base_path, port, loader).start()


def test_identity_of_a_version_is_among_the_metrics(
    base_path: Path,
    port: int,
    loader: FakeLoader,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> None:
    extra = base_path / "3" / "assets.extra"
    extra.mkdir()
    (extra / "mlmd_uuid").write_text("7c9e\n")
    file = tmp_path_factory.mktemp("config") / "monitoring.config"
    file.write_text("prometheus_config { enable: true }")
    settings = Settings(base_path, "a", 0, port, LOOPBACK, monitoring_config_file=str(file))
    server = Server(settings, loader, on_failure=pytest.fail)
    request.addfinalizer(server.stop)
    server.start()
    text = httpx.get(f"http://{LOOPBACK}:{port}/monitoring/prometheus/metrics").text
    assert "7c9e" in next(line for line in text.splitlines() if ":mlmd_map{" in line)


class Process:
    """A server in a process of its own, and the lines that it prints."""

    def __init__(
        self,
        base_path: Path,
        port: int,
        load_seconds: float = 0,
        run_seconds: float | str = 0.5,
        grace_seconds: int = 20,
        platform_config_file: str = "",
    ) -> None:
        numbers = (port, load_seconds, run_seconds, grace_seconds)
        arguments = [str(base_path), *map(str, numbers), platform_config_file]
        self.url = f"http://{LOOPBACK}:{port}/v1/models/half:predict"
        self._port = port
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.server.serve_fake", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_until_loading(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "loading\n"

    def wait_until_ready(self) -> list[str]:
        """Wait until the server is ready, and return the lines that it has printed before."""
        assert self._process.stderr is not None
        lines: list[str] = []
        for line in self._process.stderr:
            if line.endswith("ready\n"):
                return lines
            lines.append(line)
        raise AssertionError("not ready")

    def wait_until_stopping(self) -> None:
        assert self._process.stderr is not None
        assert any("finishing the requests" in line for line in self._process.stderr)

    def wait_until_in_flight(self) -> None:
        assert self._process.stdout is not None
        assert any(line == "in flight\n" for line in self._process.stdout)

    def let_run(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def count_listeners(self) -> int:
        """Return the number of sockets that listen on the port of the server."""
        address, is_listening = f":{self._port:04X}", "0A"
        sockets = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
        return sum(
            fields[1].endswith(address) and fields[3] == is_listening for fields in sockets[1:]
        )

    def send(self, *numbers: signal.Signals) -> None:
        for number in numbers:
            self._process.send_signal(number)

    def send_to_another_thread(self, number: signal.Signals) -> None:
        threads = {int(thread_id) for thread_id in os.listdir(f"/proc/{self._process.pid}/task")}
        os.kill(max(threads - {self._process.pid}), number)

    def finish(self) -> tuple[int, str]:
        _, log = self._process.communicate(timeout=120)
        return self._process.returncode, log

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def process(base_path: Path, port: int) -> Iterator[Process]:
    process = Process(base_path, port)
    yield process
    process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_lets_the_request_in_flight_finish(process: Process, number: signal.Signals) -> None:
    process.wait_until_ready()
    with ThreadPoolExecutor() as pool:
        reply = pool.submit(httpx.post, process.url, content='{"inputs": 2}', timeout=60)
        process.wait_until_in_flight()
        process.send(number)
        assert reply.result().json() == {"outputs": 3.0}
    status, log = process.finish()
    assert status == 0
    assert f"{number.name}: finishing the requests in flight" in log
    assert log.endswith("stopped\n")
    assert "Traceback" not in log


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs Linux's /proc")
def test_signal_that_the_kernel_hands_to_another_thread_is_heard(process: Process) -> None:
    process.wait_until_ready()
    process.send_to_another_thread(signal.SIGTERM)
    assert process.finish()[0] == 0


@pytest.mark.slow
def test_new_request_is_refused_while_the_last_one_finishes(base_path: Path, port: int) -> None:
    process = Process(base_path, port, run_seconds="until let")
    process.wait_until_ready()
    ready = process.url.replace("/v1/models/half:predict", "/readyz")
    assert httpx.get(ready).status_code == 200
    with ThreadPoolExecutor() as pool:
        reply = pool.submit(httpx.post, process.url, content='{"inputs": 2}', timeout=60)
        process.wait_until_in_flight()
        process.send(signal.SIGTERM)
        process.wait_until_stopping()
        # The server logs that it stops shortly before each of its processes reports that it is not
        # ready. Connect so often in a row that each frontend process has got a connection.
        refused = 0
        with httpx.Client(headers={"connection": "close"}) as client:
            while refused < 200:
                assert not reply.done()
                refused = refused + 1 if client.get(ready).status_code == 503 else 0
        assert process.count_listeners() == 1
        assert httpx.post(process.url, content='{"inputs": 2}').status_code == 503
        process.let_run()
        assert reply.result().json() == {"outputs": 3.0}
    assert process.finish()[0] == 0


PLATFORM = """
platform_configs { key: "tensorflow" value { source_adapter_config {
  [type.googleapis.com/tensorflow.serving.SavedModelBundleSourceAdapterConfig] { legacy_config {
    batching_parameters { max_batch_size { value: 4 } }
    enable_session_metadata: true
} } } } }
"""


@pytest.mark.slow
def test_platform_config_file_batches_requests(
    base_path: Path, port: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("config") / "platform.config"
    file.write_text(PLATFORM)
    process = Process(base_path, port, run_seconds=0, platform_config_file=str(file))
    lines = process.wait_until_ready()
    assert sum(f"{file}: ignored fields: enable_session_metadata" in line for line in lines) == 1
    assert httpx.post(process.url, json={"inputs": [2.0] * 4}).json() == {"outputs": [3.0] * 4}
    assert httpx.post(process.url, json={"inputs": [2.0] * 5}).json() == {
        "error": "Task size 5 is larger than maximum input batch size 4"
    }
    process.send(signal.SIGTERM)
    assert process.finish()[0] == 0


def test_platform_config_file_that_is_wrong_is_told_before_anything_is_loaded(
    base_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("config") / "platform.config"
    file.write_text(PLATFORM.replace("max_batch_size", "batch_size"))
    code = "import sys; from server import command; command.main(sys.argv[1:])"
    arguments = [f"--model_base_path={base_path}", f"--platform_config_file={file}"]
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert result.returncode == 255
    assert f"INVALID_ARGUMENT: Invalid protobuf file: '{file}': line 4, column 27" in result.stdout


def test_version_that_comes_later_is_served_without_a_failed_request(
    base_path: Path, port: int, loader: FakeLoader, request: pytest.FixtureRequest
) -> None:
    settings = Settings(base_path, "half", 0, port, LOOPBACK, file_system_poll_wait_seconds=0.01)
    server = Server(settings, loader, on_failure=pytest.fail)
    request.addfinalizer(server.stop)
    server.start()
    url = f"http://{LOOPBACK}:{port}/v1/models/half"
    with httpx.Client() as client:
        for new in (4, 5, 6):
            (base_path / str(new)).mkdir()
            while new not in loader.models or not loader.models[new - 1].is_closed:
                reply = client.post(url + ":predict", content='{"inputs": 2}')
                assert reply.json() == {"outputs": 3.0}


def test_config_file_is_read_again_and_replaces_the_models(
    tmp_path: Path, port: int, loader: FakeLoader, request: pytest.FixtureRequest
) -> None:
    for name, version in (("a", 1), ("b", 2)):
        (tmp_path / name / str(version)).mkdir(parents=True)
    file = tmp_path / "models.config"

    def write(*names: str) -> None:
        models = [
            f"config {{ name: '{name}' base_path: '{tmp_path}/{name}' "
            "model_platform: 'tensorflow' }"
            for name in names
        ]
        new = tmp_path / "new.config"
        new.write_text(f"model_config_list {{ {' '.join(models)} }}")
        new.replace(file)

    write("a")
    settings = Settings(
        None,
        port=0,
        rest_api_port=port,
        host=LOOPBACK,
        model_config_file=str(file),
        model_config_file_poll_wait_seconds=0.01,
    )
    server = Server(settings, loader, on_failure=pytest.fail)
    request.addfinalizer(server.stop)
    server.start()
    write("b")
    url = f"http://{LOOPBACK}:{port}/v1/models"
    while httpx.post(f"{url}/b:predict", content='{"inputs": 2}').status_code == 404:
        pass
    assert httpx.post(f"{url}/b:predict", content='{"inputs": 2}').json() == {"outputs": 3.0}
    file.write_text("nonsense {")
    assert httpx.post(f"{url}/b:predict", content='{"inputs": 2}').status_code == 200


def test_config_file_that_is_empty_for_a_moment_unloads_nothing(
    base_path: Path, tmp_path: Path, port: int, loader: FakeLoader
) -> None:
    file = tmp_path / "models.config"
    model = f"config {{ name: 'a' base_path: '{base_path}' model_platform: 'tensorflow' }}"
    file.write_text(f"model_config_list {{ {model} }}")
    settings = Settings(
        None, port=0, rest_api_port=port, host=LOOPBACK, model_config_file=str(file)
    )
    server = Server(settings, loader, on_failure=pytest.fail)
    server.start()
    file.write_text("")
    server.reload_config_file()
    assert not loader.models[3].is_closed
    url = f"http://{LOOPBACK}:{port}/v1/models/a:predict"
    assert httpx.post(url, content='{"inputs": 2}').json() == {"outputs": 3.0}
    server.stop()


def test_config_file_that_stays_wrong_is_told_once(
    base_path: Path, tmp_path: Path, port: int, loader: FakeLoader, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "models.config"
    file.write_text("model_config_list {}")
    settings = Settings(
        None, port=0, rest_api_port=port, host=LOOPBACK, model_config_file=str(file)
    )
    server = Server(settings, loader, on_failure=pytest.fail)
    server.start()
    file.write_text("nonsense {")
    server.reload_config_file()
    server.reload_config_file()
    server.stop()
    (line,) = [message for message in caplog.messages if "was not applied" in message]
    assert line.startswith(
        f"{file} was not applied; still using the previous version: Invalid protobuf file: "
        f"'{file}': line 1, column 1, field nonsense: "
    )
    assert "\n" not in line


@pytest.mark.slow
def test_second_signal_ends_the_process_at_once(base_path: Path, port: int) -> None:
    process = Process(base_path, port, run_seconds=60)
    process.wait_until_ready()
    with ThreadPoolExecutor() as pool:
        reply = pool.submit(httpx.post, process.url, content='{"inputs": 2}')
        process.wait_until_in_flight()
        process.send(signal.SIGINT)
        process.wait_until_stopping()
        process.send(signal.SIGINT)
        assert isinstance(reply.exception(), httpx.TransportError)
    assert process.finish()[0] == 128 + signal.SIGINT


@pytest.mark.slow
def test_request_that_outlasts_the_grace_period_does_not_keep_the_process(
    base_path: Path, port: int
) -> None:
    process = Process(base_path, port, run_seconds=600, grace_seconds=1)
    process.wait_until_ready()
    with ThreadPoolExecutor() as pool:
        reply = pool.submit(httpx.post, process.url, content='{"inputs": 2}', timeout=60)
        process.wait_until_in_flight()
        process.send(signal.SIGTERM)
        status, log = process.finish()
        assert reply.exception() or reply.result().status_code >= 500
    assert status == 0
    assert "not closed because 1 requests still use it" in log


def test_requests_are_refused_until_the_models_are_loaded(
    base_path: Path, port: int, loader: FakeLoader
) -> None:
    server = make_server(base_path, port, loader)
    url = f"http://{LOOPBACK}:{port}"

    def check() -> None:
        assert loader.models
        assert httpx.get(f"{url}/healthz").text == "ok\n"
        ready = httpx.get(f"{url}/readyz")
        assert (ready.status_code, ready.text) == (
            503,
            "not ready: the server is starting: loading the models\n",
        )
        for reply in (
            httpx.get(f"{url}/v1/models/a%2Fb"),
            httpx.post(f"{url}/v1/models/a%2Fb:predict", content='{"inputs": 2}'),
        ):
            assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
            assert reply.json()["error"].startswith("the server is starting: ")

    server.start(before_serving=check)
    assert httpx.get(f"{url}/readyz").text == "ready\n"
    assert httpx.get(f"{url}/v1/models/a%2Fb").status_code == 200
    server.stop()


@pytest.mark.slow
def test_signal_while_loading_ends_the_process(base_path: Path, port: int) -> None:
    process = Process(base_path, port, load_seconds=60)
    process.wait_until_loading()
    process.send(signal.SIGTERM)
    status, log = process.finish()
    assert status == 0
    assert log.endswith("SIGTERM before anything was served: exiting\n")


BLOCKED_IMPORT = """
import pathlib, sys, time
pathlib.Path("importing").touch()
while not pathlib.Path("released").exists():
    time.sleep(0.01)
sys.exit("released")
"""


@pytest.mark.slow
def test_health_is_answered_while_tensorflow_is_imported(tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text(BLOCKED_IMPORT)
    rest, rpc = processes.free_ports(2)
    model = f"--model_base_path={digits.BASE_PATH}"
    arguments = [model, f"--rest_api_port={rest}", f"--port={rpc}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tpuserve", "serve", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.getcwd()}"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while not (tmp_path / "importing").exists():
            assert process.poll() is None
        url = f"http://{LOOPBACK}:{rest}"
        assert httpx.get(f"{url}/healthz").status_code == 200
        assert httpx.get(f"{url}/readyz").text == (
            "not ready: the server is starting: importing TensorFlow\n"
        )
        assert httpx.get(f"{url}/v1/models/default").status_code == 503
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LOOPBACK, rpc))
        (tmp_path / "released").touch()
        assert process.communicate(timeout=120)[1].endswith("released\n")
        assert process.returncode == 1
    finally:
        process.kill()
        process.communicate()
