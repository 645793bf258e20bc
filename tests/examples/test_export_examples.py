"""Every command in the docstring of an export example prints the output in the docstring."""

import runpy
import sys
from pathlib import Path

import pytest

from tests.examples.test_training_examples import EXAMPLES, read_documented_commands

pytestmark = pytest.mark.slow

NAMES = ["export_function.py", "export_keras.py"]


@pytest.mark.parametrize("name", NAMES)
def test_an_example_prints_the_output_in_its_docstring_and_writes_one_version(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ((words, output),) = read_documented_commands(name)
    assert words[:2] == ["python", f"examples/{name}"]
    base = tmp_path / Path(words[2]).name
    monkeypatch.setattr(sys, "argv", [words[1], str(base)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert capsys.readouterr().out.rstrip("\n") == output
    (version,) = base.iterdir()
    assert (version / "assets.extra/tf_serving_warmup_requests").exists()
