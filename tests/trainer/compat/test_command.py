import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests import processes
from trainer.compat.command import run

SCRIPT = str(Path(__file__).parent / "programs" / "launched" / "script.py")


def test_program_runs_on_the_emulated_tpu() -> None:
    command = [sys.executable, "-m", "tpuserve", "run", "--emulate-tpu", "2x4", SCRIPT]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60)
    assert process.stdout.splitlines()[-1] == "2x4 False"


def test_command_runs_as_a_module_too() -> None:
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
def test_invalid_command_line_is_a_usage_error(arguments: list[str], message: str) -> None:
    with pytest.raises(click.UsageError) as error:
        run.main(arguments, standalone_mode=False)
    assert message in error.value.format_message()


@pytest.mark.parametrize("arguments", ["none.py", ".", "-m none.at.all"])
def test_missing_program_is_reported_in_one_line(arguments: str) -> None:
    process = processes.run_tpuserve("run", *arguments.split())
    assert (process.returncode, process.stdout) == (1, "")
    assert process.stderr.startswith("Error: ")
    assert len(process.stderr.splitlines()) == 1


def test_help_lists_the_options() -> None:
    output = CliRunner().invoke(run, ["--help"]).output
    assert "--emulate-tpu" in output
    assert "--tf1 / --no-tf1" in output
