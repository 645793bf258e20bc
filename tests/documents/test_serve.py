"""The commands in docs/serve.md run with real servers, and print the output in the document."""

import re

import pytest

from server.config import flags
from tests.documents.terminal import (
    ROOT,
    LogAndOutput,
    Step,
    check_output,
    read_sections,
    run_sections,
)

pytestmark = pytest.mark.slow

DOCUMENT = ROOT / "docs/serve.md"
TEXT = DOCUMENT.read_text()

# The introduction creates the model of all sections. The sections of a lane run in order.
LANES = [
    ["Several models", "Which metagraph runs", "XLA on the CPU"],
    ["Start, query, stop", "Batching", "Access and limits"],
]

SECTIONS = read_sections(TEXT)
COMMANDS = [step for steps in SECTIONS.values() for step in steps if not step.file]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LogAndOutput]:
    """The log lines and the output of each command, by the name of its step."""
    with pytest.MonkeyPatch.context() as patch:
        # Keep the exports of files of Keras out of the user's cache directory.
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        return run_sections(SECTIONS, LANES, tmp_path_factory.mktemp("serve"))


@pytest.mark.parametrize("step", COMMANDS, ids=str)
def test_a_command_prints_the_output_in_the_document(
    step: Step, outputs: dict[str, LogAndOutput]
) -> None:
    check_output(step, outputs)


def test_all_commands_are_found() -> None:
    assert len(COMMANDS) == len(re.findall(r"^\$ ", TEXT, re.M))
    assert sorted(SECTIONS) == sorted(sum(LANES, [""]))


def test_every_flag_in_the_document_exists() -> None:
    known = {*flags.FLAGS, "help", "sample", "cacert"}
    assert set(re.findall(r"(?<![\w-])--([a-z_]+)\b", TEXT)) <= known


def test_the_flags_without_effect_are_those_of_the_document() -> None:
    (listed,) = re.findall(r"accepted without effect, with a log line: (.*?) \|", TEXT)
    without = {name for name, flag in flags.FLAGS.items() if not flag.has_effect}
    assert set(re.findall(r"--(\w+)", listed)) == without


def test_the_defaults_in_the_table_of_limits_are_those_of_the_flags() -> None:
    limits = (ROOT / "docs/operations.md").read_text()
    rows = re.findall(r"^\| `--(\w+)` \| (-?[\d,]+)", limits, re.M)
    assert len(rows) == 7
    for name, value in rows:
        assert int(value.replace(",", "")) == flags.FLAGS[name].default


def test_every_link_has_a_target() -> None:
    headings = {
        document: {
            re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ (.*)", document.read_text(), re.M)
        }
        for document in DOCUMENT.parent.glob("*.md")
    }
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", TEXT):
        name, _, heading = link.partition("#")
        target = (DOCUMENT.parent / name).resolve() if name else DOCUMENT
        assert target.exists(), link
        assert not heading or heading in headings[target], link
