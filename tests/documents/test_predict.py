"""The code and the commands in docs/predict.md run, and print the output in the document."""

import re

import pytest

from tests.documents import code_blocks
from tests.documents.code_blocks import Block
from tpuserve.commands.predict import predict
from tpuserve.prediction.formats import InputFormat, OutputFormat

pytestmark = pytest.mark.slow

DOCUMENT = code_blocks.ROOT / "docs/predict.md"
BLOCKS = code_blocks.read_blocks(DOCUMENT)


@pytest.fixture(scope="module")
def block_outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return code_blocks.run_blocks(DOCUMENT, tmp_path_factory.mktemp("predict"))


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_prints_the_output_in_the_document(
    block: Block, block_outputs: dict[str, str]
) -> None:
    code_blocks.check_output(block, block_outputs)


def test_all_options_in_the_document_exist() -> None:
    options = {name for parameter in predict.params for name in parameter.opts}
    assert set(re.findall(r"--\w[\w-]*", DOCUMENT.read_text())) <= options


@pytest.mark.parametrize("formats", [InputFormat, OutputFormat])
def test_the_tables_have_all_formats(formats: type[InputFormat] | type[OutputFormat]) -> None:
    text = DOCUMENT.read_text()
    for file_format in formats:
        assert f"\n| `{file_format.value}` | " in text
