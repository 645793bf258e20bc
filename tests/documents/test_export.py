"""The code and the commands in docs/export.md run, and print the output in the document."""

import re
from pathlib import Path

import pytest

from server.command import serve
from tests import processes
from tests.documents import code_blocks
from tests.documents.code_blocks import Block
from tests.preloaded.process import run_preloaded
from tpuserve import tags

pytestmark = [
    pytest.mark.first,
    pytest.mark.slow,
    # Keras itself calls a deprecated function when it saves a model.
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't:DeprecationWarning"),
]

DOCUMENT = code_blocks.ROOT / "docs/export.md"
BLOCKS = code_blocks.read_blocks(DOCUMENT)
PNG_HEADER = 24


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("export")


@pytest.fixture(scope="module")
def block_outputs(directory: Path) -> dict[str, str]:
    pytest.importorskip("libtpu", reason="the extra compile is not installed")
    return code_blocks.run_blocks(DOCUMENT, directory)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_prints_the_output_in_the_document(
    block: Block, block_outputs: dict[str, str]
) -> None:
    code_blocks.check_output(block, block_outputs)


def test_the_picture_has_the_format_and_size_that_the_command_draws(
    block_outputs: dict[str, str], directory: Path
) -> None:
    (name,) = re.findall(r"--plot (\S+)", DOCUMENT.read_text())
    pictures = (directory / name, DOCUMENT.parent / "pictures" / name)
    # The header of a PNG file contains its signature, and the size of the image in pixels.
    drawn, reference = (picture.read_bytes()[:PNG_HEADER] for picture in pictures)
    assert drawn == reference
    assert drawn.startswith(b"\x89PNG")


def test_the_example_for_tf_examples_prints_what_its_docstring_shows(
    block_outputs: dict[str, str], directory: Path
) -> None:
    example = code_blocks.ROOT / "examples" / "ask_examples.py"
    answers = re.findall(r"^    (REST|gRPC): (.*)", example.read_text(), re.M)
    assert len(answers) == 2
    assert re.findall(r"^    (REST|gRPC): (.*)", DOCUMENT.read_text(), re.M) == answers
    with processes.serving(directory / "export/v1", tags.SERVE) as server:
        finished = run_preloaded([str(example), server.rest, server.rpc, "half"])
    assert re.findall(r"^(REST|gRPC): (.*)", finished.stdout, re.M) == answers, finished.stderr


def test_all_blocks_are_found() -> None:
    text = DOCUMENT.read_text()
    assert sum(not block.is_command for block in BLOCKS) == text.count("```python")
    assert sum(block.is_command for block in BLOCKS) == text.count("```console")


def test_the_server_has_the_flags_in_the_document() -> None:
    flags = {name for param in serve.params for name in param.opts}
    commands = re.findall(r"^    \$ tpuserve serve (.*)", DOCUMENT.read_text(), re.MULTILINE)
    assert commands
    assert set(re.findall(r"--\w+", " ".join(commands))) <= flags
