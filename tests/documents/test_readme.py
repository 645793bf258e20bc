"""The commands of the README run in their order, with real servers, and print what it shows."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.documents import code_blocks
from tests.documents.code_blocks import Block
from tests.documents.terminal import ROOT, LogAndOutput, Step, read_sections, run_sections

TEXT = (ROOT / "README.md").read_text()
SECTIONS = read_sections(TEXT)
SAMPLE = "tpuserve serve server/sample/models/digits"
# tools/check_wheel.py installs the package, tests/examples/test_demo.py runs the demo.
RUN_ELSEWHERE = ("pip install .", "make demo", "make test")
QUICK = "More than TensorFlow Serving"
STEPS = [step for steps in SECTIONS.values() for step in steps if not step.file]


def run(sections: Mapping[str, Sequence[Step]], directory: Path) -> dict[str, LogAndOutput]:
    # The directory of the sample model in a clone.
    (directory / "server").symlink_to(ROOT / "server")
    return run_sections(sections, [[heading for heading in sections if heading]], directory)


def with_status(step: Step) -> Step:
    """Return a step that prints the exit status of a command too, which must be 0."""
    if step.file or step.text.endswith("&"):
        return step
    return replace(
        step, text=f"{step.text}\nprintf '\\nstatus %d\\n' $?", output=f"{step.output}status 0\n"
    )


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LogAndOutput]:
    """What each command of the quick section shows, by the name of its step."""
    return run({QUICK: SECTIONS[QUICK]}, tmp_path_factory.mktemp("quick"))


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LogAndOutput]:
    """What each command shows; a second run has 1000 added to the numbers of its lines."""
    pytest.importorskip("libtpu", reason="the extra [compile] is not installed")
    # The request of the introduction is sent from another terminal than that of the server.
    sample = [Step(0, "", f"{SAMPLE} &"), *SECTIONS[""], Step(1, "", "kill $!; wait $!")]
    sections = {**SECTIONS, "": sample}
    second = {
        f"{heading} again": [replace(step, line=step.line + 1000) for step in steps]
        for heading, steps in sections.items()
    }
    steps = {heading: list(map(with_status, both)) for heading, both in (sections | second).items()}
    return run(steps, tmp_path_factory.mktemp("readme"))


def shows_all(step: Step, shown: LogAndOutput) -> bool:
    # Numbers may differ, such as those of the measurement.
    return code_blocks.shows_all(Block(step.line, True, step.text, step.output), "".join(shown))


@pytest.mark.parametrize("step", [step for step in SECTIONS[QUICK] if not step.file], ids=str)
def test_a_command_prints_the_output_in_the_readme(
    step: Step, outputs: dict[str, LogAndOutput]
) -> None:
    assert shows_all(step, outputs[str(step)])


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS, ids=str)
def test_a_command_works_in_the_order_of_the_readme_and_works_again(
    step: Step, two_runs: dict[str, LogAndOutput]
) -> None:
    first, second = (two_runs[f"line_{line}"] for line in (step.line, step.line + 1000))
    assert shows_all(with_status(step), first), first
    if not step.text.endswith("&"):
        assert second[1].endswith("status 0\n"), second


def test_every_command_that_stands_alone_runs_in_a_test() -> None:
    blocks = re.sub(r"^```.*?^```$", "", TEXT, flags=re.M | re.S)
    alone = re.findall(r"^ {4}(?:\$ )?((?:pip|make|python|tpuserve)\b.*?) *(?:#.*)?$", blocks, re.M)
    assert set(alone) == {SAMPLE, *RUN_ELSEWHERE}


def test_every_prompt_of_the_readme_is_that_of_a_step() -> None:
    assert len(re.findall(r"^ *\$ ", TEXT, re.M)) == len(STEPS)
