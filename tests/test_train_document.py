"""The code in docs/train.md runs, from top to bottom, and prints what stands below it."""

import contextlib
import io
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from trainer.config import RunConfig
from trainer.program import TPUProgram

pytestmark = pytest.mark.slow

DOCUMENT = Path(__file__).parents[1] / "docs/train.md"
BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:```text\n(?P<output>.*?)^```\n)?", re.M | re.S
)
BLOCKS = list(BLOCK.finditer(DOCUMENT.read_text()))


def name(block: Any) -> str:
    return f"line_{first_line(block)}"


def first_line(block: Any) -> int:
    return DOCUMENT.read_text()[: block.start("code")].count("\n") + 1


def placed(block: Any) -> str:
    """The code as errors know its lines by: by their number in the document."""
    return "\n" * (first_line(block) - 1) + str(block["code"])


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What each block has printed and logged; if it has raised, that comes last."""
    program: dict[str, Any] = {}
    found = {}
    verbosity = tf.compat.v1.logging.get_verbosity()
    logger = logging.getLogger("tensorflow")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("train"))
        for block in BLOCKS:
            out = io.StringIO()
            handler = logging.StreamHandler(out)
            handler.setFormatter(logging.Formatter("%(levelname)s:%(name)s:%(message)s"))
            logger.addHandler(handler)
            try:
                with contextlib.redirect_stdout(out):
                    exec(compile(placed(block), str(DOCUMENT), "exec"), program)
            except Exception as error:
                out.write(f"{type(error).__module__}.{type(error).__name__}: {error}")
            finally:
                logger.removeHandler(handler)
            found[name(block)] = out.getvalue()
    yield found
    tf.compat.v1.logging.set_verbosity(verbosity)


def pattern(output: str) -> str:
    """A pattern for the shown lines, of which some may have been left out between them."""
    words = (re.escape(each).replace(r"\.\.\.", ".*?") for each in output.split())
    return r"\s+".join(words)


@pytest.mark.parametrize("block", BLOCKS, ids=name)
def test_a_block_prints_what_stands_below_it(block: Any, printed: dict[str, str]) -> None:
    found = printed[name(block)]
    if block["output"] is None:
        assert "Error" not in found
        return
    # A line that begins with spaces goes on with the one before.
    lines = re.sub(r"\n +", " ", block["output"]).splitlines()
    shown = ".*?".join(f"^{pattern(each)}" for each in lines)
    assert re.search(shown, found, re.DOTALL | re.MULTILINE), found
    if "tpuserve.errors." not in block["output"]:
        assert "Error: " not in found


def test_the_first_row_of_the_table_of_batch_sizes_is_the_run_off_the_tpu() -> None:
    (row,) = re.findall(r"^\| off the TPU .*", DOCUMENT.read_text(), re.MULTILINE)
    sizes = dict.fromkeys(("train", "eval", "infer"), 64)
    program = TPUProgram(lambda features: features, {}, RunConfig(), "", batch_sizes=sizes)
    for column, params in ((3, program.input_params), (4, program.model_params)):
        found = ", ".join(str(params(mode)["batch_size"]) for mode in sizes)
        assert row.split("|")[column].strip() == found


def test_the_picture_is_what_its_script_draws(tmp_path: Path) -> None:
    pictures = DOCUMENT.parent / "pictures"
    drawn = tmp_path / "sharding.svg"
    script = [sys.executable, str(pictures / "sharding.py"), str(drawn)]
    subprocess.run(script, check=True, timeout=120)
    files = (drawn, pictures / drawn.name)
    words = [re.findall(r">([^<>]+)</text>", each.read_text()) for each in files]
    assert words[0] == words[1]
    assert words[0]


def test_all_blocks_are_found() -> None:
    assert len(BLOCKS) == DOCUMENT.read_text().count("```python")
