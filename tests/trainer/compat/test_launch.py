import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import processes

pytestmark = pytest.mark.slow

SCRIPT = str(Path(__file__).parent / "programs" / "launched" / "script.py")


def by_python(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("arguments", [["say", "--help", "--tf1", "-x", "--", "-m"], ["exit", "3"]])
def test_arguments_output_and_status_are_those_that_python_gives(arguments: list[str]) -> None:
    ours, pythons = processes.run("run", SCRIPT, *arguments), by_python(SCRIPT, *arguments)
    assert (ours.returncode, ours.stdout) == (pythons.returncode, pythons.stdout)
    assert ours.stderr == ""


def test_a_traceback_is_the_one_that_python_prints() -> None:
    ours, pythons = processes.run("run", SCRIPT, "fail"), by_python(SCRIPT, "fail")
    assert ours.returncode == pythons.returncode == 1
    assert "failing.py" in ours.stderr
    assert ours.stderr == pythons.stderr


def test_a_script_that_is_no_python_says_where(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("x = 1\ndef f(:\n")
    ours, pythons = processes.run("run", str(script)), by_python(str(script))
    assert ours.returncode == pythons.returncode == 1
    assert "line 2" in ours.stderr
    assert ours.stderr == pythons.stderr


def test_an_interrupt_ends_the_program_as_python_would() -> None:
    command = [sys.executable, "-m", "tpuserve", "run", SCRIPT, "wait"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=60)
    assert said == "last words\n"
    assert errors.endswith("\nKeyboardInterrupt\n")
    assert errors.count('File "') == 1
    assert process.returncode == -signal.SIGINT


def test_a_module_runs_as_python_runs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(SCRIPT).parents[1])
    ours = processes.run("run", "-m", "launched.script", "say", "--help")
    pythons = by_python("-m", "launched.script", "say", "--help")
    assert (ours.returncode, ours.stdout) == (0, pythons.stdout)
