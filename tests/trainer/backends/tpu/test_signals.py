"""SIGTERM, SIGINT and SIGKILL to a process that trains, evaluates or predicts for long."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.preloaded.process import PreloadedProcess
from tests.trainer import programs

pytestmark = pytest.mark.slow

# A time limit in seconds, to catch a process that hangs: no run of these tests ends by itself.
LIMIT_SECS = 60


def start_program(
    mode: str,
    model_dir: Path,
    iterations: int,
    max_steps: int = 10**9,
    *,
    loops: int = 0,
    device: str = "emulated",
) -> "subprocess.Popen[str]":
    arguments = [mode, model_dir, iterations, max_steps, loops, device]
    return PreloadedProcess(
        [sys.executable, "-m", "tests.trainer.backends.tpu.long_run", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[4],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )


def read_until(process: "subprocess.Popen[str]", line: str, times: int = 1) -> None:
    assert process.stdout is not None
    for output_line in process.stdout:
        times -= output_line == f"{line}\n"
        if not times:
            return
    pytest.fail(f"it ended without saying {line!r}")


def wait_for_end(process: "subprocess.Popen[str]", secs: int = LIMIT_SECS) -> tuple[str, str]:
    """Wait until a process ends; return its standard output and standard error."""
    try:
        return process.communicate(timeout=secs)
    finally:
        process.kill()


@pytest.mark.parametrize(
    ("mode", "device"),
    [
        ("train", "cpu"),
        ("train", "emulated"),
        ("train", "pjrt"),
        ("evaluate", "emulated"),
        ("predict", "emulated"),
    ],
)
def test_ctrl_c_ends_a_long_loop_at_once(tmp_path: Path, mode: str, device: str) -> None:
    programs.estimator(tmp_path).train(programs.ones(), steps=1)
    process = start_program(mode, tmp_path, iterations=10**9, device=device)
    read_until(process, "fed")
    process.send_signal(signal.SIGINT)
    output, complaints = wait_for_end(process)
    assert process.returncode == -signal.SIGINT
    assert "after" not in output
    assert complaints.count("Traceback") == 1
    assert complaints.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize("device", ["emulated", "pjrt"])
def test_sigterm_saves_a_checkpoint_and_exits_with_0(tmp_path: Path, device: str) -> None:
    process = start_program("train", tmp_path, iterations=4, device=device)
    read_until(process, "loop", times=3)
    process.send_signal(signal.SIGTERM)
    output, _ = wait_for_end(process)
    assert process.returncode == 0
    assert "after" not in output
    assert programs.variable(tmp_path, "global_step") == 4 * (3 + output.count("loop"))


def test_after_sigkill_the_same_command_continues_to_the_same_step(tmp_path: Path) -> None:
    # The process is killed in a loop after the 6th, or while it waits after the 15th.
    process = start_program("train", tmp_path, iterations=4, max_steps=80, loops=15)
    read_until(process, "loop", times=6)
    process.kill()
    process.communicate()
    killed_at = int(programs.variable(tmp_path, "global_step"))
    assert 0 < killed_at < 80
    again = start_program("train", tmp_path, iterations=4, max_steps=80)
    output, _ = wait_for_end(again, secs=120)
    assert again.returncode == 0
    assert output.count("loop") == (80 - killed_at) // 4
    assert programs.variable(tmp_path, "global_step") == 80


def test_a_process_ends_with_a_generator_half_read(tmp_path: Path) -> None:
    programs.estimator(tmp_path).train(programs.ones(), steps=1)
    process = start_program("leave", tmp_path, iterations=4)
    read_until(process, "after leave trainer")
    _, complaints = wait_for_end(process)
    assert process.returncode == 0
    assert "Traceback" not in complaints
