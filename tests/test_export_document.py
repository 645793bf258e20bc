"""The code and the commands in docs/export.md run, and print what stands below them."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import tensorflow as tf

from server.command import serve
from tests import document_blocks
from tests.document_blocks import Block

pytestmark = pytest.mark.slow

DOCUMENT = document_blocks.ROOT / "docs/export.md"
BLOCKS = document_blocks.read(DOCUMENT)
PNG_HEADER = 24


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("export")


@pytest.fixture(scope="module")
def printed(directory: Path) -> Iterator[dict[str, str]]:
    pytest.importorskip("libtpu", reason="the extra tpuserve[compile] is not installed")
    verbosity = tf.compat.v1.logging.get_verbosity()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        yield document_blocks.run(DOCUMENT, directory)
    tf.compat.v1.logging.set_verbosity(verbosity)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_prints_what_stands_below_it(block: Block, printed: dict[str, str]) -> None:
    found = printed[str(block)]
    shows = document_blocks.shows_all if block.is_command else document_blocks.shows_some
    assert shows(block, found), found
    if not block.is_command:
        assert "Error: " not in found


def test_the_picture_is_of_the_kind_that_the_command_draws(
    printed: dict[str, str], directory: Path
) -> None:
    (name,) = re.findall(r"--plot (\S+)", DOCUMENT.read_text())
    pictures = (directory / name, DOCUMENT.parent / "pictures" / name)
    # Its signature, and its size in pixels.
    drawn, shown = (each.read_bytes()[:PNG_HEADER] for each in pictures)
    assert drawn == shown
    assert drawn.startswith(b"\x89PNG")


def test_all_blocks_are_found() -> None:
    text = DOCUMENT.read_text()
    assert sum(not each.is_command for each in BLOCKS) == text.count("```python")
    assert sum(each.is_command for each in BLOCKS) == text.count("```console")


def test_the_server_has_the_flags_that_are_shown() -> None:
    flags = {name for each in serve.params for name in each.opts}
    (shown,) = re.findall(r"^    \$ tpuserve serve (.*)", DOCUMENT.read_text(), re.MULTILINE)
    assert set(re.findall(r"--\w+", shown)) <= flags
