import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = str(Path(__file__).parent / "programs" / "launched" / "script.py")
COMMAND = ("-m", "tpuserve", "run")


def run_by_python(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("arguments", [["say", "--help", "--tf1", "-x", "--", "-m"], ["exit", "3"]])
def test_arguments_output_and_status_are_as_with_python(arguments: list[str]) -> None:
    actual, expected = (
        run_by_python(*COMMAND, SCRIPT, *arguments),
        run_by_python(SCRIPT, *arguments),
    )
    assert (actual.returncode, actual.stdout) == (expected.returncode, expected.stdout)
    assert actual.stderr == ""


def test_traceback_is_as_with_python() -> None:
    actual, expected = (
        run_by_python(*COMMAND, SCRIPT, "fail"),
        run_by_python(SCRIPT, "fail"),
    )
    assert actual.returncode == expected.returncode == 1
    assert "failing.py" in actual.stderr
    assert actual.stderr == expected.stderr


def test_syntax_error_names_the_line(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("x = 1\ndef f(:\n")
    actual, expected = (
        run_by_python(*COMMAND, str(script)),
        run_by_python(str(script)),
    )
    assert actual.returncode == expected.returncode == 1
    assert "line 2" in actual.stderr
    assert actual.stderr == expected.stderr


def test_interrupt_ends_the_program_as_with_python() -> None:
    command = [sys.executable, *COMMAND, SCRIPT, "wait"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert output == "last words\n"
    assert errors.endswith("\nKeyboardInterrupt\n")
    assert errors.count('File "') == 1
    assert process.returncode == -signal.SIGINT


def test_module_runs_as_with_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(SCRIPT).parents[1])
    actual = run_by_python(*COMMAND, "-m", "launched.script", "say", "--help")
    expected = run_by_python("-m", "launched.script", "say", "--help")
    assert (actual.returncode, actual.stdout) == (0, expected.stdout)
