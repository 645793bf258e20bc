"""`make test-gpu` says that there is no GPU, and its steps work on the CPU."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import gpu_check

ROOT = Path(__file__).parents[1]
STEPS = [
    *("GPU", "packages", "data", "TensorFlow trains", "TensorFlow serves", "PJRT trains a line"),
    *("PJRT trains", "PJRT serves", "verify", "PJRT/TensorFlow"),
]


@pytest.mark.skipif(bool(gpu_check.find_gpus()), reason="this machine has a GPU")
def test_machine_without_a_gpu_is_told_and_installs_nothing() -> None:
    make = shutil.which("make")
    assert make is not None
    ended = subprocess.run(
        [make, "--no-print-directory", "test-gpu", f"PYTHON={sys.executable}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "no NVIDIA GPU: nvidia-smi finds none, so nothing was run\n"
    assert not (ROOT / ".venv-gpu").exists()


@pytest.mark.nightly
def test_steps_work_on_the_cpu_and_have_a_line_each() -> None:
    pytest.importorskip("jax")
    ended = subprocess.run(
        [sys.executable, "-m", "tools.gpu_check", "--platform=cpu", "--steps=40"]
        + ["--serving_seconds=0.2"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode == 0, ended.stdout
    assert [line[:18].rstrip() for line in ended.stdout.splitlines()] == STEPS
    assert "{serve, tpu} on CPU with the pjrt runtime" in ended.stdout
    assert "passed: largest absolute difference" in ended.stdout
