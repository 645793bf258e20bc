"""The commands in docs/tpu.md run without a TPU, and print the output in the document."""

import importlib.util
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

pytestmark = [
    pytest.mark.first,
    pytest.mark.slow,
    pytest.mark.skipif(
        not importlib.util.find_spec("libtpu"), reason="the extra compile is not installed"
    ),
]

TEXT = (ROOT / "docs/tpu.md").read_text()
SECTIONS = read_sections(TEXT)
COMMANDS = [step for steps in SECTIONS.values() for step in steps if not step.file]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LogAndOutput]:
    """The log lines and the output of each command, by the name of its step."""
    return run_sections(SECTIONS, [list(SECTIONS)], tmp_path_factory.mktemp("tpu"))


@pytest.mark.parametrize("step", COMMANDS, ids=str)
def test_a_command_prints_the_output_in_the_document(
    step: Step, outputs: dict[str, LogAndOutput]
) -> None:
    check_output(step, outputs)


def test_all_commands_are_found() -> None:
    assert len(COMMANDS) == len(re.findall(r"^\$ ", TEXT, re.M))


def test_commands_that_are_not_run_have_no_prompt_and_no_output() -> None:
    for block in re.findall(r"^```sh\n(.*?)^```", TEXT, re.M | re.S):
        assert not re.search(r"^\$ ", block, re.M)
