"""Every command in the docstring of a training example prints the output in the docstring."""

import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = [
    "train.py",
    "evaluate_uneven.py",
    "predict_padding.py",
    "train_and_evaluate.py",
    "host_call.py",
    "input_modes.py",
    "warm_start.py",
    "train_keras.py",
]


def read_documented_commands(name: str) -> Iterator[tuple[list[str], str]]:
    """Yield the commands of an example's docstring, each with its output."""
    docstring = (EXAMPLES / name).read_text().split('"""')[1]
    (block,) = re.findall(r"(?:^    .*\n)+", docstring, re.MULTILINE)
    for part in re.split(r"^    \$ ", block, flags=re.MULTILINE)[1:]:
        command, *output = part.splitlines()
        yield shlex.split(command), "\n".join(line.removeprefix("    ") for line in output)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_prints_the_output_in_its_docstring(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words, output in read_documented_commands(name):
        with monkeypatch.context() as patch:
            while "=" in words[0]:
                patch.setenv(*words.pop(0).split("="))
            python, script, *arguments = words
            assert (python, script) == ("python", f"examples/{name}")
            arguments = [argument.replace("/tmp", str(tmp_path)) for argument in arguments]
            patch.setattr(sys, "argv", [script, *arguments])
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        assert capsys.readouterr().out.rstrip("\n") == output
