"""A command of a shell runs in a preloaded process, as it would in an ordinary one."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.preloaded.commands import preloaded_commands


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Return the environment of shells that find the commands first."""
    with preloaded_commands(tmp_path / "bin"):
        yield {**os.environ, "PATH": os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]])}


def run_shell(line: str, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-c", line], env=environment, capture_output=True, text=True, timeout=900
    )


def test_command_has_the_streams_and_the_status_of_the_shell(shell: dict[str, str]) -> None:
    program = "import sys; print('tensorflow' in sys.modules, input()); sys.exit(7)"
    finished = run_shell(f'echo typed | python -c "{program}"; echo status $?', shell)
    assert finished.stdout == "True typed\nstatus 7\n"


@pytest.mark.slow
def test_tpuserve_is_a_command(shell: dict[str, str]) -> None:
    finished = run_shell("tpuserve --version && tpuserve-model-server --version", shell)
    assert finished.stdout.startswith("tpuserve "), finished.stderr
    assert "TensorFlow ModelServer: " in finished.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_signal_to_the_command_ends_the_program(shell: dict[str, str], number: int) -> None:
    program = "import time; print('started', flush=True); time.sleep(900)"
    line = f'exec 3< <(exec python -c "{program}"); read -u 3 line; kill -{number} $!; cat <&3'
    assert run_shell(f"{line}; wait $!; echo $line $?", shell).stdout == f"started {128 + number}\n"
