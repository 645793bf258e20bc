"""The code in docs/embeddings.md runs from top to bottom, and prints the output in the document."""

from collections.abc import Iterator

import pytest
import tensorflow as tf

from tests import document_blocks
from tests.document_blocks import Block

pytestmark = pytest.mark.slow

DOCUMENT = document_blocks.ROOT / "docs/embeddings.md"
BLOCKS = document_blocks.read_blocks(DOCUMENT)


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    verbosity = tf.compat.v1.logging.get_verbosity()
    directory = tmp_path_factory.mktemp("embeddings")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        yield document_blocks.run_blocks(DOCUMENT, directory)
    tf.compat.v1.logging.set_verbosity(verbosity)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_prints_the_output_in_the_document(block: Block, printed: dict[str, str]) -> None:
    output = printed[str(block)]
    assert document_blocks.shows_some(block, output), output
    assert "Error: " not in output
