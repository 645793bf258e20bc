"""A preloaded process behaves as an ordinary one, and has TensorFlow when its program begins."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.preloaded.process import WITHOUT_EXTRAS, PreloadedProcess, run_preloaded

_DESCRIBE = """
import os, sys
has_it = "tensorflow" in sys.modules
print(has_it, __name__, sys.argv, os.getcwd(), os.environ["NAME"], os.getppid())
print(sys.stdin.read(), file=sys.stderr)
sys.exit(7)
"""


def test_program_gets_its_arguments_streams_directory_and_environment(tmp_path: Path) -> None:
    process = PreloadedProcess(
        [sys.executable, "-c", _DESCRIBE, "--flag"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "NAME": "value"},
    )
    output, errors = process.communicate("typed", timeout=900)
    assert output == f"True __main__ ['-c', '--flag'] {tmp_path} value {os.getpid()}\n"
    assert errors == "typed\n"
    assert process.returncode == 7


@pytest.mark.parametrize("is_hidden", [False, True])
def test_jax_is_imported_unless_the_optional_packages_are_hidden(is_hidden: bool) -> None:
    pytest.importorskip("jax")
    program = "import sys; print('jax' in sys.modules); import jax"
    path = WITHOUT_EXTRAS if is_hidden else ""
    finished = run_preloaded(["-c", program], env={**os.environ, "PYTHONPATH": path})
    assert finished.stdout == f"{not is_hidden}\n"
    assert ("ImportError: hidden" in finished.stderr) == is_hidden


def test_script_and_module_run_as_the_interpreter_runs_them(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("NAME = 'a module beside the script'")
    script = tmp_path / "script.py"
    script.write_text("import sys, neighbour; print(neighbour.NAME, sys.argv[1:])")
    assert run_preloaded([str(script), "1"]).stdout == "a module beside the script ['1']\n"
    assert run_preloaded(["-m", "neighbour"], cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_signal_ends_the_process_with_its_status(number: signal.Signals) -> None:
    program = "import time; print('started', flush=True); time.sleep(900)"
    with PreloadedProcess(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(number)
        assert process.wait(timeout=900) == -number


def test_variable_that_is_read_early_is_in_force_in_an_ordinary_process() -> None:
    program = "import sys; print(sys.flags.utf8_mode, 'tensorflow' in sys.modules)"
    environment = {**os.environ, "PYTHONUTF8": "1"}
    assert run_preloaded(["-c", program], env=environment).stdout == "1 False\n"
