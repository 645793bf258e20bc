import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

import tpuserve
import tpuserve.errors
from tests.tpuserve import saved_models
from tpuserve import cli


def run_cli(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    assert isinstance(exit_.value.code, int)
    return exit_.value.code


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return saved_models.write_saved_model(saved_models.half_plus_two(), tmp_path / "1")


def test_inspect_prints_json_for_programs(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli("inspect", str(directory), "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["metagraphs"]) == 2


def test_an_error_is_one_line_with_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli("inspect", str(tmp_path / "gone")) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"Error: no directory {tmp_path / 'gone'}. Name a directory that holds a saved_model.pb."
    ]


@pytest.mark.parametrize(
    "arguments", [["inspect"], ["predict", "--inputs=in", "--outputs=out"], ["analyse"]]
)
def test_a_uri_is_one_line_that_leads_to_a_local_copy(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(*arguments, "s3://models/half/1") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("Error: s3://models/half/1 is a URI, which only `tpuserve serve` reads.")


def test_an_unknown_flag_is_one_line_that_leads_to_the_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_cli("serve", "--model_nam=x") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--model_nam" in line
    assert "--model_name" in line
    assert "See 'tpuserve serve --help'." in line


def test_an_unknown_command_is_one_line_with_the_command_of_a_similar_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_cli("srve") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "Error: No such command 'srve'. Did you mean 'serve'? See 'tpuserve --help'."


def test_an_unknown_command_like_no_other_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli("xyz") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "Error: No such command 'xyz'. See 'tpuserve --help'."


def test_debug_shows_where_an_error_came_from(tmp_path: Path) -> None:
    with pytest.raises(tpuserve.errors.NotFound):
        cli.main(["--debug", "inspect", str(tmp_path / "gone")])


def test_debug_flag_of_a_program_shows_no_traceback_of_tpuserve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = str(tmp_path / "gone.py")
    assert run_cli("run", program, "--debug") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"Error: {program} does not exist")


def test_help_lists_each_command_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli("--help") == 0
    text = capsys.readouterr().out
    for command in ("compile", "demo", "doctor", "inspect", "serve", "verify"):
        assert f"\n  {command} " in text


def test_help_cuts_no_description_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    run_cli("--help")
    commands = capsys.readouterr().out.partition("\nCommands:\n")[2].partition("\n\n")[0]
    for line in commands.splitlines():
        assert re.search(r"[^.]\.$", line), line


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli() == 0
    assert "\n  inspect " in capsys.readouterr().out


def test_every_option_of_every_command_has_a_help_text() -> None:
    context = cli.cli.make_context("tpuserve", ["inspect", "x"])
    for name in cli.cli.list_commands(context):
        command = cli.cli.get_command(context, name)
        assert command is not None
        assert command.help
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert getattr(parameter, "help", None), f"{name} {parameter.name}"


def test_help_names_the_unit_of_every_number(capsys: pytest.CaptureFixture[str]) -> None:
    context = cli.cli.make_context("tpuserve", ["inspect", "x"])
    for name in {*cli.cli.list_commands(context)} - {"serve"}:
        run_cli(name, "--help")
        text = capsys.readouterr().out
        assert not re.search(r"--\S+ (INTEGER|FLOAT)\b", text), name


def test_the_help_of_every_command_ends_with_two_examples(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in cli.cli.list_commands(cli.cli.make_context("tpuserve", ["inspect", "x"])):
        run_cli(name, "--help")
        examples = capsys.readouterr().out.partition("\n  Examples:\n")[2].splitlines()
        assert len(examples) >= 2, name
        assert all(f"tpuserve {name}" in example for example in examples), name


def test_tab_completes_commands_and_flags() -> None:
    completion = ShellComplete(cli.cli, {}, "tpuserve", "_TPUSERVE_COMPLETE")
    assert [item.value for item in completion.get_completions([], "in")] == ["inspect"]
    flags = [item.value for item in completion.get_completions(["serve"], "--model_b")]
    assert flags == ["--model_base_path"]


@pytest.mark.parametrize("arguments", [["--help"], ["inspect"]])
def test_the_command_line_does_not_import_tensorflow(arguments: list[str], directory: Path) -> None:
    if arguments == ["inspect"]:
        arguments = ["inspect", str(directory)]
    program = (
        "import sys; from tpuserve.cli import main\n"
        f"try: main({arguments!r})\n"
        "finally: assert 'tensorflow' not in sys.modules and 'fastapi' not in sys.modules"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_a_command_does_not_import_the_other_commands() -> None:
    program = (
        "import sys; from tpuserve.cli import main\n"
        "try: main(['serve', '--help'])\n"
        "finally: assert not {'numpy', 'rich', 'fastapi', 'google.protobuf'} & {*sys.modules}"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_version_is_the_newest_of_the_changelog(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli("--version") == 0
    changelog = (Path(__file__).parents[2] / "CHANGELOG.md").read_text()
    newest = next(line for line in changelog.splitlines() if line.startswith("## ["))
    assert newest.startswith(f"## [{tpuserve.__version__}]")
    own, tensorflow, serving_api = capsys.readouterr().out.splitlines()
    assert own == f"tpuserve {tpuserve.__version__}"
    assert tensorflow == f"TensorFlow {version('tensorflow')}"
    assert serving_api == f"TensorFlow Serving's API {version('tensorflow-serving-api')}"


def test_inspect_shows_each_of_several_directories(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli("inspect", str(directory), str(directory)) == 0
    assert capsys.readouterr().out.count("metagraph {serve, tpu}") == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_a_one_line_error(directory: Path) -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "tpuserve", "inspect", str(directory)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert result.returncode != 0
    assert "Traceback" not in result.stderr


def test_a_closed_pipe_prints_no_traceback(directory: Path) -> None:
    command = [sys.executable, "-m", "tpuserve", "inspect", *[str(directory)] * 50]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
    process.wait()
