"""The code and the commands in docs/client.md run, and print the output in the document."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from server.config import flags
from tests import models, processes
from tests.documents import code_blocks
from tests.documents.code_blocks import Block
from tpuserve.bench import analysis, rendering
from tpuserve.bench.analysis import Analysis, Goal
from tpuserve.bench.configurations import ModelEngine, without_batching
from tpuserve.bench.load import Load
from tpuserve.bench.windows import PERCENTILES, Result

pytestmark = pytest.mark.slow

DOCUMENT = code_blocks.ROOT / "docs/client.md"
BLOCKS = code_blocks.read_blocks(DOCUMENT)


@pytest.fixture(scope="module")
def block_outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Run the blocks; the commands measure a server that has the ports of the document.

    They measure for a second in place of at least 14, as they print the same table.
    """
    directory = tmp_path_factory.mktemp("client")
    base = models.export(models.half_plus_two, directory / "served").parent
    with processes.serving(base) as server:
        copy = directory / "client.md"
        text = DOCUMENT.read_text().replace("localhost:8501", server.rest)
        short = "tpuserve bench --warm-up 0 --window 0.2 --max-windows 3"
        copy.write_text(text.replace("$ tpuserve bench", f"$ {short}"))
        return code_blocks.run_blocks(copy, directory)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_prints_the_output_in_the_document(
    block: Block, block_outputs: dict[str, str]
) -> None:
    code_blocks.check_output(block, block_outputs)


def test_the_table_of_errors_is_that_of_the_client() -> None:
    from tpuserve.client import transport
    from tpuserve.errors import Code

    rows = [line.split("|")[1:4] for line in DOCUMENT.read_text().splitlines() if "| `" in line]
    table = {
        code.strip(): (name.strip().strip("`"), status)
        for name, status, codes in rows
        if codes.strip().isupper()
        for code in codes.split(",")
    }
    assert table.keys() == {code.name for code in Code}
    for code_name, (name, status) in table.items():
        assert type(transport.error_of_code(Code[code_name], "")).__name__ == name
        for number in status.split(","):
            code = transport.code_of_http_status(int(number))
            assert type(transport.error_of_code(code, "")).__name__ == name


def test_the_flags_of_each_server_exist() -> None:
    commands = re.findall(r"^    .*tpuserve serve (.*)", DOCUMENT.read_text(), re.M)
    assert len(commands) == 2
    for command in commands:
        assert set(re.findall(r"--(\w+)", command)) <= set(flags.FLAGS)


def test_analyse_prints_such_a_table_and_the_command_for_its_argument() -> None:
    document = DOCUMENT.read_text()
    (block,) = re.findall(r"^    \$ tpuserve analyse (.*?)^\S", document, re.M | re.S)
    table, _, last = block[block.index("configuration  ") :].partition("...")
    results: dict[str, list[Result]] = {}
    for name, clients, rate, p50, p99 in re.findall(
        r"^     (\w.*?)? +(\d+) +([\d.]+) +([\d.]+) +([\d.]+) +0$", table, re.M
    ):
        percentiles = dict.fromkeys(PERCENTILES, 0.0) | {50.0: float(p50), 99.0: float(p99)}
        result = Result(Load(int(clients)), float(rate), 0.0, percentiles, 1, 0, "", True, ())
        results.setdefault(name or list(results)[-1], []).append(result)
    engines = {
        name: ModelEngine(name, {"engine": name} if name == "xla" else {}) for name in results
    }
    analyses = [
        Analysis(without_batching(engine), results[name]) for name, engine in engines.items()
    ]
    printed = io.StringIO()
    rendering.print_analyses(analyses, Console(file=printed, width=100))
    assert printed.getvalue().replace("─", "").split() == table.replace("─", "").split()
    choice = analysis.choose(analyses, Goal(99.0, 100.0))
    assert choice is not None
    text = rendering.format_choice(choice, Path(block.split()[0]), 99.0)
    assert text.split() == last.split()
