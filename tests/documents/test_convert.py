"""The code and the commands in docs/convert.md run, and print the output in the document."""

import re

import pytest

from tests.documents import code_blocks
from tests.documents.code_blocks import Block
from tpuserve.commands.convert import convert
from tpuserve.export.conversion.analysis import host_ops

pytestmark = pytest.mark.slow

DOCUMENT = code_blocks.ROOT / "docs/convert.md"
BLOCKS = code_blocks.read_blocks(DOCUMENT)


@pytest.fixture(scope="module")
def block_outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return code_blocks.run_blocks(DOCUMENT, tmp_path_factory.mktemp("convert"))


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_prints_the_output_in_the_document(
    block: Block, block_outputs: dict[str, str]
) -> None:
    code_blocks.check_output(block, block_outputs)


def test_all_options_in_the_document_exist() -> None:
    options = {name for parameter in convert.params for name in parameter.opts}
    options |= {name for parameter in convert.params for name in parameter.secondary_opts}
    assert set(re.findall(r"--\w[\w-]*", DOCUMENT.read_text())) <= options | {"--gigabytes"}


def test_all_reasons_are_explained() -> None:
    text = DOCUMENT.read_text()
    reasons = (
        *(host_ops.STRINGS, host_ops.NO_KERNEL, host_ops.VARIABLE_UPDATE, host_ops.LOOP),
        *(host_ops.SHAPE_OF_VALUES, host_ops.OPEN_SHAPE),
    )
    assert [reason for reason in reasons if reason not in text] == []
    assert host_ops.TABLE.removesuffix(" of the host") in text
