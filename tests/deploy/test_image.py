"""The image's files: linted, and the entrypoint starts what TensorFlow Serving's image starts."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
ENTRYPOINT = ROOT / "deploy" / "image" / "entrypoint.sh"


def test_dockerfile_satisfies_hadolint() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_dockerfile_copies_what_the_build_context_has() -> None:
    context = set(re.findall(r"^!(\S+)", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    for line in re.findall(r"^COPY (?!--from)(.*) \S+$", (ROOT / "Dockerfile").read_text(), re.M):
        for source in line.split():
            if not source.startswith("--"):
                assert (ROOT / source).exists(), source
                assert any(source.startswith(entry) for entry in context), source


def started(tmp_path: Path, *arguments: str, model_name: str = "") -> str:
    """Return the command line that the entrypoint starts."""
    for name in ("tpuserve", "tpuserve-model-server"):
        command = tmp_path / name
        command.write_text(f'#!/bin/sh\necho {name} "$@"\n')
        command.chmod(0o755)
    (tmp_path / "models").mkdir(exist_ok=True)
    done = subprocess.run(
        [ENTRYPOINT, *arguments],
        env={
            "PATH": f"{tmp_path}:/usr/bin:/bin",
            "MODEL_NAME": model_name,
            "MODEL_BASE_PATH": str(tmp_path / "models"),
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip().replace(str(tmp_path), "")


def test_entrypoint_serves_the_model_of_the_variables(tmp_path: Path) -> None:
    assert started(tmp_path, "--enable_batching", model_name="half") == (
        "tpuserve-model-server --port=8500 --rest_api_port=8501 --model_name=half "
        "--model_base_path=/models/half --enable_batching"
    )


def test_entrypoint_serves_the_sample_model_without_a_model(tmp_path: Path) -> None:
    assert started(tmp_path, "--enable_batching") == "tpuserve serve --sample --enable_batching"


def test_entrypoint_serves_a_model_with_the_default_name(tmp_path: Path) -> None:
    (tmp_path / "models" / "model").mkdir(parents=True)
    assert "--model_name=model --model_base_path=/models/model" in started(tmp_path)


def test_flags_that_name_models_come_last_and_win(tmp_path: Path) -> None:
    flag = "--model_config_file=/models/models.config"
    assert started(tmp_path, flag).endswith(f"--model_base_path=/models/model {flag}")
