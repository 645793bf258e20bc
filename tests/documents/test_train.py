"""The code in docs/train.md runs from top to bottom, and prints the output in the document."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import code_blocks
from tests.documents.code_blocks import Block
from trainer.config.run_config import RunConfig
from trainer.model.model_program import TPUModelProgram

pytestmark = pytest.mark.slow

DOCUMENT = code_blocks.ROOT / "docs/train.md"
BLOCKS = code_blocks.read_blocks(DOCUMENT)


@pytest.fixture(scope="module")
def block_outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return code_blocks.run_blocks(DOCUMENT, tmp_path_factory.mktemp("train"))


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_prints_the_output_in_the_document(
    block: Block, block_outputs: dict[str, str]
) -> None:
    code_blocks.check_output(block, block_outputs)


def test_the_first_row_of_the_table_of_batch_sizes_is_the_run_off_the_tpu() -> None:
    (row,) = re.findall(r"^\| off the TPU .*", DOCUMENT.read_text(), re.MULTILINE)
    sizes = dict.fromkeys(("train", "eval", "infer"), 64)
    program = TPUModelProgram(lambda features: features, {}, RunConfig(), "", batch_sizes=sizes)
    for column, params in ((3, program.input_params), (4, program.model_params)):
        cell = ", ".join(str(params(mode)["batch_size"]) for mode in sizes)
        assert row.split("|")[column].strip() == cell


def test_the_script_of_the_picture_draws_the_same_text(tmp_path: Path) -> None:
    pictures = DOCUMENT.parent / "pictures"
    drawn = tmp_path / "sharding.svg"
    script = [sys.executable, str(pictures / "sharding.py"), str(drawn)]
    subprocess.run(script, check=True, timeout=120)
    files = (drawn, pictures / drawn.name)
    words = [re.findall(r">([^<>]+)</text>", file.read_text()) for file in files]
    assert words[0] == words[1]
    assert words[0]


def test_all_blocks_are_found() -> None:
    assert len(BLOCKS) == DOCUMENT.read_text().count("```python")
