"""The image's files are linted, and its entrypoint starts what the image's environment names."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from server.sample import digits
from tests import processes

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
IMAGE = ROOT / "deploy" / "image"
ENTRYPOINT, HEALTH_CHECK = IMAGE / "entrypoint.sh", IMAGE / "healthcheck.py"


def test_dockerfile_satisfies_hadolint() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    result = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


def test_dockerfile_copies_what_the_build_context_has() -> None:
    context = set(re.findall(r"^!(\S+)", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    for line in re.findall(r"^COPY (?!--from)(.*) \S+$", (ROOT / "Dockerfile").read_text(), re.M):
        for source in line.split():
            if not source.startswith("--"):
                assert (ROOT / source).exists(), source
                assert any(source.startswith(entry) for entry in context), source


def test_dockerfile_installs_extras_that_exist_and_remote_storage() -> None:
    (extras,) = re.findall(r'^ARG EXTRAS="\[(.*)\]"$', (ROOT / "Dockerfile").read_text(), re.M)
    project = (ROOT / "pyproject.toml").read_text()
    for extra in extras.split(","):
        assert re.search(rf"^{extra} = \[", project, re.M), extra
    assert "remote" in extras.split(",")


@pytest.mark.parametrize("capability", ["multi-models", "accept-bind-to-port"])
def test_dockerfile_has_the_labels_that_sagemaker_looks_for(capability: str) -> None:
    label = f"com.amazonaws.sagemaker.capabilities.{capability}=true"
    assert re.search(rf"^(LABEL|   ) {re.escape(label)}", (ROOT / "Dockerfile").read_text(), re.M)


def run_entrypoint(
    tmp_path: Path, *arguments: str, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run the entrypoint with commands that print SageMaker's port and their command line."""
    for name in ("tpuserve", "tpuserve-model-server"):
        command = tmp_path / name
        command.write_text(f'#!/bin/sh\necho $SAGEMAKER_BIND_TO_PORT {name} "$@"\n')
        command.chmod(0o755)
    return subprocess.run(
        [ENTRYPOINT, *arguments],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


SERVER = "tpuserve-model-server"
REST = "--rest_api_port=8501"
# As in the Dockerfile.
DEFAULTS = {"MODEL_NAME": "", "MODEL_BASE_PATH": "/models"}
VERTEX = {
    "AIP_HTTP_PORT": "8080",
    "AIP_PREDICT_ROUTE": "/v1/endpoints/1/deployedModels/2:predict",
    "AIP_HEALTH_ROUTE": "/v1/endpoints/1/deployedModels/2",
}
URI = {"AIP_STORAGE_URI": "gs://bucket/model"}
PORT = {"SAGEMAKER_BIND_TO_PORT": "9090"}


@pytest.mark.parametrize(
    ("arguments", "environment", "command"),
    [
        ("", {}, "tpuserve serve --sample"),
        ("--enable_batching", {}, "tpuserve serve --sample --enable_batching"),
        ("--sample", {}, "tpuserve serve --sample --sample"),
        (
            "--enable_batching",
            {"MODEL_NAME": "half"},
            f"{SERVER} {REST} --model_name=half --model_base_path=/models/half --enable_batching",
        ),
        (
            "",
            {"MODEL_BASE_PATH": "gs://bucket/models/"},
            f"{SERVER} {REST} --model_name=model --model_base_path=gs://bucket/models/model",
        ),
        (
            "--model_config_file=/models/models.config",
            {},
            f"{SERVER} {REST} --model_name=model --model_config_file=/models/models.config",
        ),
        # The flag begins as one that names models.
        (
            "--model_config_file_poll_wait_seconds=5",
            {"MODEL_NAME": "half"},
            f"{SERVER} {REST} --model_name=half --model_base_path=/models/half "
            "--model_config_file_poll_wait_seconds=5",
        ),
        ("", VERTEX | URI, f"{SERVER} --model_name=model"),
        ("", URI, f"{SERVER} {REST} --model_name=model"),
        ("", VERTEX | URI | {"MODEL_NAME": "half"}, f"{SERVER} --model_name=half"),
        (
            "",
            VERTEX | {"MODEL_NAME": "half"},
            f"{SERVER} --model_name=half --model_base_path=/models/half",
        ),
        ("serve", {}, f"8080 {SERVER} --model_name=model"),
        ("serve", PORT, f"9090 {SERVER} --model_name=model"),
        ("serve", {"SAGEMAKER_MULTI_MODEL": "true"}, f"8080 {SERVER} --model_name=model"),
        ("", {"SAGEMAKER_REGION": "eu-west-1"}, "tpuserve serve --sample"),
        (
            "serve --model_base_path=/half",
            {},
            f"{SERVER} {REST} --model_name=model --model_base_path=/half",
        ),
        # These commands are refused by `tpuserve serve`: --sample is beside another model.
        (
            "--sample",
            {"MODEL_NAME": "half"},
            f"tpuserve serve {REST} --model_name=half --model_base_path=/models/half --sample",
        ),
        ("--sample", VERTEX, "tpuserve serve --sample"),
        ("--sample", PORT, "9090 tpuserve serve --model_name=model --sample"),
    ],
)
def test_entrypoint_serves_what_variables_and_flags_name(
    tmp_path: Path, arguments: str, environment: dict[str, str], command: str
) -> None:
    result = run_entrypoint(tmp_path, *arguments.split(), **DEFAULTS | environment)
    assert (result.stdout.strip(), result.stderr) == (command, "")


def test_entrypoint_serves_a_model_that_is_there_on_every_service(tmp_path: Path) -> None:
    (tmp_path / "models" / "model").mkdir(parents=True)
    base_path = {"MODEL_BASE_PATH": str(tmp_path / "models")}
    for environment, start in (
        ({}, f"{SERVER} {REST}"),
        (VERTEX | URI, SERVER),
        (PORT, f"9090 {SERVER}"),
    ):
        assert run_entrypoint(tmp_path, **base_path | environment).stdout.strip() == (
            f"{start} --model_name=model --model_base_path={tmp_path}/models/model"
        )


def test_entrypoint_refuses_vertex_ai_without_a_model(tmp_path: Path) -> None:
    result = run_entrypoint(tmp_path, **DEFAULTS | VERTEX)
    assert (result.returncode, result.stdout) == (1, "")
    assert (
        "Give the model an artifact URI (AIP_STORAGE_URI), or set MODEL_BASE_PATH" in result.stderr
    )


@contextmanager
def serving(*arguments: str, **variables: str) -> Iterator[list[str]]:
    """Run the entrypoint with these variables until it is ready; give the log lines until then."""
    commands = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}", **variables}
    with subprocess.Popen(
        [ENTRYPOINT, *arguments], env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            log: list[str] = []
            while not (log and log[-1].endswith(" ready\n")):
                log.append(process.stderr.readline())
                assert log[-1], f"not ready, but ended:\n{''.join(log)}"
            yield log
        finally:
            process.terminate()
            process.communicate(timeout=60)


def test_server_of_the_image_answers_the_routes_of_vertex_ai() -> None:
    rpc_port, rest_port = processes.free_ports(2)
    variables = VERTEX | {"AIP_HTTP_PORT": str(rest_port), "AIP_STORAGE_URI": str(digits.BASE_PATH)}
    url = f"http://127.0.0.1:{rest_port}"
    with serving(f"--port={rpc_port}", **variables) as log:
        answer = httpx.post(f"{url}{VERTEX['AIP_PREDICT_ROUTE']}", content=digits.REQUEST)
        assert answer.json()["predictions"][0]["digit"] == 3
        assert httpx.get(f"{url}{VERTEX['AIP_HEALTH_ROUTE']}").status_code == 200
        check = [sys.executable, str(HEALTH_CHECK)]
        assert subprocess.run(check, env={**os.environ, **variables}, timeout=60).returncode == 0
    (line,) = [line for line in log if "flags set by environment variables" in line]
    assert f"--rest_api_port={rest_port} (AIP_HTTP_PORT)" in line
    assert f"--model_base_path={digits.BASE_PATH} (AIP_STORAGE_URI)" in line
