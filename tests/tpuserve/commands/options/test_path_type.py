"""Commands take base paths of models, and refuse URIs as the place of their outputs."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.tpuserve import saved_models
from tpuserve import cli
from tpuserve.commands.path_type import OutputPath
from tpuserve.errors import InvalidSetting, NotFound


@pytest.mark.parametrize(
    "arguments",
    [
        ["predict", "model", "--inputs", "rows.jsonl", "--outputs", "gs://bucket/out"],
        ["convert", "model", "gs://bucket/out"],
        ["export", "model.keras", "gs://bucket/out"],
        ["demo", "--directory", "gs://bucket/out"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_outputs_at_a_uri_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    error = CliRunner().invoke(cli.cli, arguments).exception
    assert isinstance(error, InvalidSetting)
    assert str(error) == (
        "gs://bucket/out is a URI, and only a local directory can be written. Name a directory of "
        'this machine, and copy it there, as Python does with fsspec.filesystem("gs").put('
        '"DIRECTORY/", "gs://bucket/out/", recursive=True).'
    )
    assert list(tmp_path.iterdir()) == []


def test_a_uri_of_a_local_directory_is_refused_with_its_path() -> None:
    with pytest.raises(InvalidSetting, match=r"^file:///tmp/out is a URI, .* Name /tmp/out\.$"):
        OutputPath().convert("file:///tmp/out", None, None)


def test_an_output_directory_need_not_exist(tmp_path: Path) -> None:
    assert OutputPath().convert(str(tmp_path / "a:b"), None, None) == tmp_path / "a:b"
    (tmp_path / "file").touch()
    with pytest.raises(click.BadParameter, match="is a file"):
        OutputPath(file_okay=False).convert(str(tmp_path / "file"), None, None)


def test_a_base_path_stands_for_its_newest_version(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("9", "10", "x"):
        saved_models.write_saved_model(saved_models.half_plus_two(), tmp_path / name)
    cli.cli(["inspect", str(tmp_path)], standalone_mode=False)
    printed = capfd.readouterr()
    assert printed.err == f"newest version: {tmp_path / '10'}\n"
    assert printed.out.startswith(f"{tmp_path / '10'}: graph ")


def test_a_directory_of_models_is_no_base_path(tmp_path: Path) -> None:
    saved_models.write_saved_model(saved_models.half_plus_two(), tmp_path / "half")
    error = CliRunner().invoke(cli.cli, ["inspect", str(tmp_path)]).exception
    assert isinstance(error, NotFound)
    assert str(error).endswith(f"Name one of them: {tmp_path / 'half'}")
