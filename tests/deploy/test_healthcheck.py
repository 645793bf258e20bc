"""The image's health check asks the server as the server's own flags and variables say."""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from server.admission.admission import AdmissionController
from server.admission.api_keys import ApiKeys
from server.config.settings import Settings
from server.config.tls import TlsConfig
from server.dataplane import DataPlane
from server.frontends.rest.app import build_rest_app
from server.frontends.rest.transport.server import RestServer
from server.models.manager import Manager
from server.process import ports
from tests.server.aspired_versions import aspire
from tests.server.certificates import Authority
from tests.server.fakes import FakeLoader

SCRIPT = Path(__file__).parents[2] / "deploy" / "image" / "healthcheck.py"
spec = importlib.util.spec_from_file_location("healthcheck", SCRIPT)
assert spec is not None
assert spec.loader is not None
healthcheck = importlib.util.module_from_spec(spec)
spec.loader.exec_module(healthcheck)


@contextmanager
def serving(
    admission: AdmissionController, keys: Path | None = None, tls: TlsConfig | None = None
) -> Iterator[int]:
    """Serve a model over REST; give the port."""
    manager = Manager(FakeLoader())
    aspire(manager, "half", {3: Path("/models/half/3")})
    settings = Settings(Path("/models/half"))
    app = build_rest_app(
        DataPlane(manager), settings, admission=admission, keys=ApiKeys(keys) if keys else None
    )
    with ports.bind_port("127.0.0.1", 0, "--rest_api_port") as listener:
        server = RestServer(app, listener, 5, pytest.fail, tls=tls)
        server.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.stop()
            server.join()


def test_flags_behind_an_init_process_are_those_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "1/task/1").mkdir(parents=True)
    (tmp_path / "1/cmdline").write_bytes(b"/sbin/docker-init\0--\0entrypoint.sh\0serve\0")
    (tmp_path / "1/task/1/children").write_text("7 ")
    assert healthcheck.find_server(tmp_path) == tmp_path / "7"

    (tmp_path / "1/cmdline").write_bytes(b"python\0tpuserve-model-server\0")
    assert healthcheck.find_server(tmp_path) == tmp_path / "1"


def test_flags_after_two_dashes_are_read() -> None:
    reason = healthcheck.check_readiness(["docker-init", "--", "run", "--rest_api_port=0"], {})
    assert reason.startswith("--rest_api_port=0 turns REST off")


@pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("has_keys", [False, True], ids=["no keys", "keys"])
def test_server_is_healthy_once_it_is_ready(tmp_path: Path, has_tls: bool, has_keys: bool) -> None:
    arguments, tls, keys = ["python", "tpuserve-model-server", "--rest_api_port=8501"], None, None
    if has_tls:
        identity = Authority().identity()
        tls = TlsConfig(identity.key, identity.certificate)
        arguments.append("--ssl_config_file=/etc/ssl.conf")
    if has_keys:
        keys = tmp_path / "keys"
        keys.write_text("# keys\n\nfirst key\nsecond\n")
        arguments += ["--api_keys_file", str(keys)]
    admission = AdmissionController()
    with serving(admission, keys, tls) as port:
        arguments.append(f"--rest_api_port={port}")
        assert healthcheck.check_readiness(arguments, {}) == (
            "status 503 of /readyz: not ready: the server is starting"
        )
        admission.mark_ready()
        assert healthcheck.check_readiness(arguments, {}) == ""


@pytest.mark.parametrize("variable", ["AIP_HTTP_PORT", "SAGEMAKER_BIND_TO_PORT"])
def test_port_of_a_cloud_service_is_asked_unless_a_flag_names_another(variable: str) -> None:
    admission = AdmissionController()
    admission.mark_ready()
    with serving(admission) as port:
        assert healthcheck.check_readiness([], {variable: str(port)}) == ""
        flag = f"--rest_api_port={port}"
        assert healthcheck.check_readiness([flag, "--host=127.0.0.1"], {variable: "1"}) == ""


@pytest.mark.parametrize(
    ("arguments", "environment", "reason"),
    [
        (["--rest_api_port=0"], {}, "--rest_api_port=0 turns REST off"),
        (["--rest_api_port=http"], {}, "could not ask the server: .*'http'"),
        (["--api_keys_file=/none"], {}, "could not ask the server: .*No such file.*/none"),
        ([], {"AIP_HTTP_PORT": "http"}, "could not ask the server: .*AIP_HTTP_PORT is 'http'"),
    ],
)
def test_reason_is_told_in_one_line(
    arguments: list[str], environment: dict[str, str], reason: str
) -> None:
    answer = healthcheck.check_readiness(arguments, environment)
    assert re.search(reason, answer)
    assert "\n" not in answer


def test_status_tells_whether_the_server_is_ready() -> None:
    admission = AdmissionController()
    with serving(admission) as port:

        def run() -> "subprocess.CompletedProcess[str]":
            return subprocess.run(
                [sys.executable, str(SCRIPT)],
                env={**os.environ, "AIP_HTTP_PORT": str(port), "http_proxy": "http://localhost:1"},
                capture_output=True,
                text=True,
                timeout=60,
            )

        starting = run()
        assert (starting.returncode, starting.stderr) == (
            1,
            "status 503 of /readyz: not ready: the server is starting\n",
        )
        admission.mark_ready()
        assert run().returncode == 0


# Runs a command as the first process of a namespace of processes, as a container does.
NAMESPACE = ["unshare", "--map-root-user", "--pid", "--fork", "--mount-proc"]


def can_unshare() -> bool:
    try:
        return subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def test_flags_of_the_containers_first_process_say_where_to_ask() -> None:
    if not can_unshare():
        pytest.skip("this user may not create namespaces of processes")
    first = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, sys.argv[1]]))"
    admission = AdmissionController()
    admission.mark_ready()
    with serving(admission) as port:
        command = [*NAMESPACE, sys.executable, "-c", first, str(SCRIPT), f"--rest_api_port={port}"]
        assert subprocess.run(command, timeout=60).returncode == 0
