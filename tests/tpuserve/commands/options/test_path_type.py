"""Commands refuse a URI as the place of their outputs, and say how to copy them there."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tpuserve import cli
from tpuserve.commands.options.path_type import OutputPath
from tpuserve.errors import InvalidSetting


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
