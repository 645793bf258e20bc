"""The README's section on what TensorFlow Serving does not have runs with a real server."""

from pathlib import Path

import pytest

from tests.documents import code_blocks
from tests.documents.code_blocks import Block
from tests.documents.terminal import ROOT, LogAndOutput, Step, read_sections, run_sections

HEADING = "More than TensorFlow Serving"
STEPS = read_sections((ROOT / "README.md").read_text())[HEADING]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LogAndOutput]:
    """The log lines and the output of each command, by the name of its step."""
    directory: Path = tmp_path_factory.mktemp("readme")
    # The directory of the sample model in a clone.
    (directory / "server").symlink_to(ROOT / "server")
    return run_sections({HEADING: STEPS}, [[HEADING]], directory)


@pytest.mark.parametrize("step", [step for step in STEPS if not step.file], ids=str)
def test_a_command_prints_the_output_in_the_readme(
    step: Step, outputs: dict[str, LogAndOutput]
) -> None:
    # Numbers may differ, such as those of the measurement.
    block = Block(step.line, True, step.text, step.output)
    assert code_blocks.shows_all(block, "".join(outputs[str(step)]))
