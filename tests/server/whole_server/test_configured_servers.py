"""A whole server obeys its config files, keys, TLS, log and sockets."""

import json
import ssl
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from tests.server.certificates import Authority
from tests.server.frontends.grpc import clients
from tests.server.whole_server.fake_server import GOOD, SECONDS, FakeServer, wait_until
from tpuserve.saved_model import warm_up_file

pytestmark = [pytest.mark.slow, pytest.mark.first]

AUTHORITY = Authority()
CONNECTIONS = 8
SERVING, NOT_SERVING = 1, 2


def quote(pem: bytes) -> str:
    return pem.decode().replace("\n", "\\n")


class GuardedServer(FakeServer):
    """A server with TLS, API keys and an access log."""

    def __init__(self, directory: Path) -> None:
        identity = AUTHORITY.identity()
        tls = directory / "ssl.config"
        tls.write_text(
            f'server_key: "{quote(identity.key)}" server_cert: "{quote(identity.certificate)}"'
        )
        self.keys = directory / "keys"
        self.keys.write_text("first\n")
        flags = {"ssl_config_file": str(tls), "api_keys_file": str(self.keys)}
        super().__init__(directory, access_log=True, open_health=True, **flags)
        self.context = ssl.create_default_context(cadata=AUTHORITY.certificate.decode())

    def rest_status(self, key: str, path: str = "/v1/models/half:predict") -> int:
        """Return the HTTP status of a request on a new connection."""
        url = f"https{self.url.removeprefix('http')}{path}"
        headers = {"authorization": f"Bearer {key}"}
        return httpx.post(
            url, content=GOOD, headers=headers, verify=self.context, timeout=SECONDS
        ).status_code

    def rpc_status(self, key: str) -> str:
        """Return the gRPC status code of a call on a new connection."""
        credentials = grpc.ssl_channel_credentials(AUTHORITY.certificate)
        with clients.connect(self.rpc, credentials, *OWN_CONNECTION) as client:
            try:
                client.prediction.Predict(
                    clients.predict_request(x=[2.0]),
                    metadata=[("authorization", f"Bearer {key}")],
                    timeout=SECONDS,
                )
            except grpc.RpcError as error:
                return str(error.code().name)
        return "OK"


# gRPC's channels to the same address share connections by default.
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]


def repeat(function: Callable[..., Any], *arguments: Any) -> set[Any]:
    """Call a function in many threads at the same time; return the different results."""
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        calls = [pool.submit(function, *arguments) for _ in range(CONNECTIONS)]
        return {call.result() for call in calls}


@pytest.fixture
def guarded_server(tmp_path: Path) -> Iterator[GuardedServer]:
    server = GuardedServer(tmp_path)
    yield server
    server.kill()


def test_keys_are_asked_for_over_tls_and_read_again_by_every_process(
    guarded_server: GuardedServer,
) -> None:
    assert repeat(guarded_server.rest_status, "first") == {200}
    assert repeat(guarded_server.rpc_status, "first") == {"OK"}
    assert repeat(guarded_server.rest_status, "second") == {401}
    assert repeat(guarded_server.rpc_status, "second") == {"UNAUTHENTICATED"}
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(f"{guarded_server.url}/healthz")
    new = guarded_server.keys.with_suffix(".new")
    new.write_text("second\n")
    new.replace(guarded_server.keys)
    assert repeat(guarded_server.rest_status, "first") == {401}
    assert repeat(guarded_server.rpc_status, "first") == {"UNAUTHENTICATED"}
    assert repeat(guarded_server.rest_status, "second") == {200}
    assert repeat(guarded_server.rpc_status, "second") == {"OK"}

    status, log = guarded_server.stop()
    assert status == 0
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    counts: dict[tuple[str, Any], int] = {}
    for line in lines:
        kind = (line["protocol"], line["status"])
        counts[kind] = counts.get(kind, 0) + 1
    assert counts == {
        ("REST", 200): 2 * CONNECTIONS,
        ("gRPC", "OK"): 2 * CONNECTIONS,
        ("REST", 401): 2 * CONNECTIONS,
        ("gRPC", "UNAUTHENTICATED"): 2 * CONNECTIONS,
    }
    answered = [line for line in lines if line["status"] in (200, "OK")]
    assert {(line["model"], line["version"], line["peer"]) for line in answered} == {
        ("half", 3, "127.0.0.1")
    }


def model(name: str, base_path: Path, more: str = "") -> str:
    return (
        f'config {{ name: "{name}" base_path: "{base_path}" model_platform: "tensorflow" {more} }}'
    )


class ConfiguredServer(FakeServer):
    """A server with a model config file, a request log, a UNIX socket and gRPC health checks."""

    def __init__(self, directory: Path, socket: str) -> None:
        self.base_path = directory / "models"
        self.logs = directory / "logs"
        self.config = directory / "models.config"
        self.configure(model("half", self.base_path, self.logging_config))
        super().__init__(
            directory,
            model_config_file=str(self.config),
            model_config_file_poll_wait_seconds=0.05,
            grpc_socket_path=socket,
            enable_grpc_healthcheck_service=True,
        )

    @property
    def logging_config(self) -> str:
        return (
            f'logging_config {{ log_collector_config {{ type: "file" filename_prefix: '
            f'"{self.logs / "half"}" }} sampling_config {{ sampling_rate: 1 }} }}'
        )

    def configure(self, *models: str) -> None:
        new = self.config.with_suffix(".new")
        new.write_text(f"model_config_list {{ {' '.join(models)} }}")
        new.replace(self.config)

    def status(self, name: str) -> int:
        url = f"{self.url}/v1/models/{name}:predict"
        return httpx.post(url, content=GOOD, timeout=SECONDS).status_code


@pytest.fixture
def configured_server(tmp_path: Path) -> Iterator[ConfiguredServer]:
    # The path of a UNIX socket may have about 100 characters, so use a short directory.
    with tempfile.TemporaryDirectory() as directory:
        server = ConfiguredServer(tmp_path, f"{directory}/socket")
        yield server
        server.kill()


def test_reload_is_in_force_in_every_process_and_requests_are_logged_once(
    configured_server: ConfiguredServer,
) -> None:
    assert repeat(configured_server.status, "half") == {200}
    assert repeat(configured_server.status, "other") == {404}
    # The server polls the model config file; an invalid file changes nothing.
    configured_server.configure(
        model("half", configured_server.base_path, configured_server.logging_config),
        model("other", configured_server.base_path),
    )
    wait_until(lambda: configured_server.status("other") == 200)
    assert repeat(configured_server.status, "other") == {200}
    configured_server.config.write_text("nonsense {")
    wait_until(lambda: "was not applied" in configured_server.log_text)
    assert repeat(configured_server.status, "other") == {200}

    with clients.connect(configured_server.rpc) as client:
        reply = reload(client, "third", configured_server.base_path)
        assert (reply.status.error_code, reply.metric[0].int64_value_increase) == (0, 0)
        assert repeat(configured_server.status, "third") == {200}
        assert repeat(configured_server.status, "half") == {404}
        with pytest.raises(grpc.RpcError, match="INVALID_ARGUMENT"):
            reload(client, "fourth", Path("relative"))
        assert repeat(configured_server.status, "third") == {200}
    page = httpx.get(f"{configured_server.url}/monitoring/prometheus/metrics", timeout=SECONDS).text
    assert 'tpuserve_config_reloads_total{code="INVALID_ARGUMENT"} 2' in page.splitlines()
    assert 'tpuserve_config_reloads_total{code="OK"} 2' in page.splitlines()

    assert configured_server.stop()[0] == 0
    (log,) = configured_server.logs.iterdir()
    assert len(list(warm_up_file.read_warm_up_records(log))) == CONNECTIONS


def reload(client: clients.Client, name: str, base_path: Path) -> Any:
    from tensorflow_serving.apis import model_management_pb2

    count = "/tensorflow/serving/request_count"
    request = model_management_pb2.ReloadConfigRequest(metric_names=[count])
    models = request.config.model_config_list.config
    models.add(name=name, base_path=str(base_path), model_platform="tensorflow")
    return client.model.HandleReloadConfigRequest(request, timeout=SECONDS)


def test_socket_answers_and_watchers_of_its_health_hear_of_the_stop(
    configured_server: ConfiguredServer,
) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    socket = f"unix:{configured_server.socket_path}"
    for address in (socket, configured_server.rpc):
        with clients.connect(address) as client:
            (half,) = client.predict(x=[2.0]).outputs["y"].float_val
            assert half == 3.0
    with clients.connect(socket) as client:
        stub = health_pb2_grpc.HealthStub(client.channel)
        request = health_pb2.HealthCheckRequest()
        assert stub.Check(request, timeout=SECONDS).status == SERVING
        answers = stub.Watch(request, timeout=SECONDS)
        assert next(answers).status == SERVING
        status, log = configured_server.stop()
        assert [answer.status for answer in answers] == [NOT_SERVING]
    assert status == 0
    assert log.endswith("stopped\n")
    assert "Traceback" not in log
