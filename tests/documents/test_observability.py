"""The commands in docs/observability.md run with a real server, and print the output shown."""

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

pytestmark = pytest.mark.slow

TEXT = (ROOT / "docs/observability.md").read_text()
SECTIONS = read_sections(TEXT)
COMMANDS = [step for steps in SECTIONS.values() for step in steps]
EXAMPLE = "print_spans.py"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LogAndOutput]:
    """The log lines and the output of each command, by the name of its step."""
    return run_sections(SECTIONS, [list(SECTIONS)], tmp_path_factory.mktemp("observability"))


@pytest.mark.parametrize("step", COMMANDS, ids=str)
def test_a_command_prints_the_output_in_the_document(
    step: Step, outputs: dict[str, LogAndOutput]
) -> None:
    check_output(step, outputs)


def test_the_document_runs_the_example() -> None:
    assert any(f"examples/{EXAMPLE}" in step.text for step in COMMANDS)


def test_all_commands_are_found() -> None:
    assert len(COMMANDS) == len(re.findall(r"^\$ ", TEXT, re.M))
