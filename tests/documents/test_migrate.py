"""The programs and the commands in docs/migrate.md run, and print the output in the document."""

import re

import pytest

from tests.documents import code_blocks
from tests.documents.code_blocks import Block
from tests.trainer.migration import tables
from trainer.migration.command import migrate

pytestmark = pytest.mark.slow

DOCUMENT = code_blocks.ROOT / "docs/migrate.md"
REFERENCE = code_blocks.ROOT / "docs/migrate_reference.md"
BLOCKS = code_blocks.read_blocks(DOCUMENT)
PROGRAMS = re.findall(r"^```python (\S+)\n(.*?)^```", DOCUMENT.read_text(), re.M | re.S)


@pytest.fixture(scope="module")
def block_outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    directory = tmp_path_factory.mktemp("migrate")
    for name, program in PROGRAMS:
        (directory / name).write_text(program)
    return code_blocks.run_blocks(DOCUMENT, directory)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_command_prints_the_output_in_the_document(
    block: Block, block_outputs: dict[str, str]
) -> None:
    code_blocks.check_output(block, block_outputs)


def test_all_programs_are_named_and_all_commands_are_run() -> None:
    text = DOCUMENT.read_text()
    assert text.count("```python") == len(PROGRAMS)
    assert text.count("```console") == len(BLOCKS)


def test_every_program_is_run_or_read() -> None:
    commands = "".join(block.text for block in BLOCKS)
    assert all(name in commands for name, _ in PROGRAMS)


def test_the_tables_are_those_of_the_code() -> None:
    document_tables = tables.read_tables(REFERENCE.read_text())
    assert document_tables == tables.tables(), (
        "python -m tests.trainer.migration.tables writes them"
    )


def test_the_document_names_all_options() -> None:
    (section,) = re.findall(
        r"## The report of `tpuserve migrate`\n(.*)", DOCUMENT.read_text(), re.S
    )
    options = {name for param in migrate.params for name in param.opts if name.startswith("--")}
    assert options <= set(re.findall(r"--[\w-]+", section))
