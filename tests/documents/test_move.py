"""The commands in docs/move.md run, with our own server in the place of TensorFlow Serving."""

import re

import pytest

from tests.documents.terminal import (
    ROOT,
    LogAndOutput,
    Step,
    check_output,
    read_sections,
    run_sections,
)
from tpuserve.commands.compare import compare

pytestmark = pytest.mark.slow

TEXT = (ROOT / "docs/move.md").read_text()
SECTIONS = read_sections(TEXT.replace("\n$ tensorflow_model_server", "\n$ tpuserve-model-server"))
COMMANDS = [step for steps in SECTIONS.values() for step in steps if not step.file]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LogAndOutput]:
    return run_sections(SECTIONS, [["The steps"]], tmp_path_factory.mktemp("move"))


@pytest.mark.parametrize("step", COMMANDS, ids=str)
def test_a_command_prints_the_output_in_the_document(
    step: Step, outputs: dict[str, LogAndOutput]
) -> None:
    check_output(step, outputs)


def test_all_commands_are_found() -> None:
    assert len(COMMANDS) == len(re.findall(r"^\$ ", TEXT, re.M))
    assert sorted(SECTIONS) == ["", "The steps"]


def test_there_are_ten_steps() -> None:
    assert re.findall(r"^\*\*(\d+)\. ", TEXT, re.M) == [str(number) for number in range(1, 11)]


def test_the_options_of_compare_in_the_document_exist() -> None:
    options = {name for parameter in compare.params for name in parameter.opts}
    commands = [line for line in TEXT.splitlines() if "tpuserve compare" in line or "| " in line]
    assert set(re.findall(r"--[a-z]+(?:-[a-z]+)*(?![\w-])", "\n".join(commands))) <= options
