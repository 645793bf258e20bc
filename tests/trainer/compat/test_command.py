import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests import processes
from trainer.compat.command import run

pytestmark = pytest.mark.slow

SCRIPT = str(Path(__file__).parent / "programs" / "launched" / "script.py")


def test_an_emulated_tpu_is_there_before_the_program_is() -> None:
    done = processes.run("run", "--emulate-tpu", "2x4", SCRIPT)
    assert done.stdout.splitlines()[-1] == "2x4 False"


def test_it_runs_as_a_module_too() -> None:
    command = [sys.executable, "-m", "tpuserve.run", SCRIPT, "exit", "4"]
    assert subprocess.run(command, timeout=60).returncode == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--emulate-tpu", "x", SCRIPT], "'x' is not a valid topology. Give a number of cores"),
        (["--emulate-tpu", "3x", SCRIPT], "'3x' is not a valid topology."),
        ([], "Missing argument 'SCRIPT'"),
        (["--nope", SCRIPT], "No such option"),
    ],
)
def test_what_is_no_command_line_is_said(arguments: list[str], message: str) -> None:
    with pytest.raises(click.UsageError) as error:
        run.main(arguments, standalone_mode=False)
    assert message in error.value.format_message()


@pytest.mark.parametrize("asked", ["none.py", ".", "-m none.at.all"])
def test_what_is_no_program_is_one_line(asked: str) -> None:
    done = processes.run("run", *asked.split())
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: ")
    assert len(done.stderr.splitlines()) == 1


def test_its_own_help_says_the_options() -> None:
    output = CliRunner().invoke(run, ["--help"]).output
    assert "--emulate-tpu" in output
    assert "--tf1 / --no-tf1" in output
