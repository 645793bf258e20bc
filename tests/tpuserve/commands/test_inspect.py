import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.tpuserve import saved_models
from tests.tpuserve.saved_models import WORDS
from tpuserve import cli
from tpuserve.commands.inspect import inspect


def run_inspect(*arguments: object) -> int:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["inspect", *map(str, arguments)])
    assert isinstance(exit_.value.code, int)
    return exit_.value.code


def test_an_intact_model_is_shown_with_status_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_inspect(WORDS) == 0
    printed = capsys.readouterr()
    assert "on the TPU   nothing" in printed.out
    assert printed.err == ""


def test_json_is_one_object_for_each_directory(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_inspect(WORDS, WORDS, "--json") == 0
    decoder, text, directories = json.JSONDecoder(), capsys.readouterr().out, []
    while text:
        value, end = decoder.raw_decode(text)
        directories.append(value["directory"])
        text = text[end:].lstrip()
    assert directories == [str(WORDS)] * 2


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_model_that_cannot_be_served_is_shown_with_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    directory = saved_models.copy_of_words(tmp_path / "1")
    (directory / "variables" / "variables.index").unlink()
    assert run_inspect(directory, *options) == 1
    printed = capsys.readouterr()
    assert "serving_default" in printed.out
    assert "variables/variables.index is missing" in printed.out
    (line,) = printed.err.splitlines()
    assert line.startswith("Error: variables/variables.index is missing in ")


@pytest.mark.parametrize("content", [None, b"", b"no model\n", b"\x12\xff\xff\xff\xff\xff"])
def test_an_unreadable_model_is_one_line_with_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    if content is None:
        (tmp_path / "saved_model.pb").mkdir()
    else:
        (tmp_path / "saved_model.pb").write_bytes(content)
    assert run_inspect(tmp_path) == 1
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert line.startswith("Error: ")
    assert "saved_model.pb" in line
    assert printed.out == ""


def test_the_help_describes_output_and_exit_status() -> None:
    text = CliRunner().invoke(inspect, ["--help"]).output
    for word in ("DIRECTORY", "--json", "batch functions", "exit status", "problems"):
        assert word in text


def test_an_empty_path_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_inspect("") == 1
    assert capsys.readouterr().err.startswith("Error: DIRECTORY is empty. Name a directory")
