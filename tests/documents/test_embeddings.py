"""The code in docs/embeddings.md runs from top to bottom, and prints the output in the document."""

import pytest

from tests.documents import code_blocks
from tests.documents.code_blocks import Block

pytestmark = pytest.mark.slow

DOCUMENT = code_blocks.ROOT / "docs/embeddings.md"
BLOCKS = code_blocks.read_blocks(DOCUMENT)


@pytest.fixture(scope="module")
def block_outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return code_blocks.run_blocks(DOCUMENT, tmp_path_factory.mktemp("embeddings"))


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_prints_the_output_in_the_document(
    block: Block, block_outputs: dict[str, str]
) -> None:
    code_blocks.check_output(block, block_outputs)
