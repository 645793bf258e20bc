"""`tpuserve compile --train` runs a program until it trains, and compiles its step instead."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests import processes
from tpuserve.cli import cli

pytest.importorskip("jax")
pytest.importorskip("libtpu")

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples/train.py"


def run_compile(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, as the program may change the process."""
    return processes.run_tpuserve("compile", *map(str, arguments))


@pytest.mark.slow
def test_json_has_each_batch_size_and_nothing_is_trained(tmp_path: Path) -> None:
    plot = tmp_path / "plot.png"
    options = ["--topology", "v5e:2x2", "--batch-size", 32, 64, "--json", "--plot", plot]
    result = run_compile("--train", EXAMPLE, *options, "--", tmp_path / "line", "--max_steps=20")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["passed"]
    assert [compilation["batch_size"] for compilation in report["compilations"]] == [32, 64]
    # The step sums the gradients of w and b, and the loss: three float32 of 4 bytes.
    assert [compilation["reduced_bytes"] for compilation in report["compilations"]] == [12, 12]
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "line").exists()


@pytest.mark.slow
def test_program_without_training_is_a_one_line_error(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("print('no training')\n")
    result = run_compile("--train", program, "--topology", "v5e:1x1")
    assert result.returncode == 1
    assert result.stdout == "no training\n"
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"Error: {program} has ended without a call of TPUEstimator.train")


def test_missing_program_is_a_one_line_error(tmp_path: Path) -> None:
    arguments = ["compile", "--train", str(tmp_path / "none.py")]
    result = CliRunner().invoke(cli, arguments, standalone_mode=False)
    assert str(result.exception) == f"there is no program {tmp_path}/none.py. Name a Python file."


def test_an_option_of_the_program_before_the_dashes_is_told_where_it_goes() -> None:
    result = CliRunner().invoke(cli, ["compile", "--train", str(EXAMPLE), "--data_dir=x"])
    assert result.exit_code == 2
    # Versions of click differ in the quotes.
    output = result.output.replace("'", "").replace("option: ", "option ")
    assert "No such option --data_dir. Give the options of the program after --" in output
    assert "after --" not in CliRunner().invoke(cli, ["compile", "model", "--data_dir=x"]).output


@pytest.mark.parametrize("arguments", [[], ["a", "b"]])
def test_other_than_one_directory_is_a_usage_error(arguments: list[str]) -> None:
    result = CliRunner().invoke(cli, ["compile", *arguments])
    assert result.exit_code == 2
    assert "Give one DIRECTORY with a SavedModel, or --train PROGRAM.py; found" in result.output


@pytest.mark.slow
def test_error_of_the_program_has_its_traceback_and_status(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("raise ValueError('of the program')\n")
    result = run_compile("--train", program, "--topology", "v5e:1x1")
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == "ValueError: of the program"


def test_compiler_process_imports_no_tensorflow() -> None:
    program = (
        "import sys; from tpuserve.compilation.train_step import worker; "
        "assert 'tensorflow' not in sys.modules"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
