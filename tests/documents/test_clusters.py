"""The command in docs/clusters.md trains in four processes, and prints the output shown there."""

import re
from typing import Any

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

TEXT = (ROOT / "docs/clusters.md").read_text()
SECTIONS = read_sections(TEXT)
COMMANDS = [step for steps in SECTIONS.values() for step in steps if not step.file]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LogAndOutput]:
    """The log lines and the output of each command, by the name of its step."""
    return run_sections(SECTIONS, [list(SECTIONS)], tmp_path_factory.mktemp("clusters"))


@pytest.mark.parametrize("step", COMMANDS, ids=str)
def test_a_command_prints_the_output_in_the_document(
    step: Step, outputs: dict[str, LogAndOutput]
) -> None:
    check_output(step, outputs)


def test_the_resolver_describes_the_first_worker() -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["config"].task_type == "worker"
    assert names["config"].is_chief


def test_all_commands_are_found() -> None:
    assert len(COMMANDS) == len(re.findall(r"^\$ ", TEXT, re.M)) == 1
