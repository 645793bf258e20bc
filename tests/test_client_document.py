"""The code and the commands in docs/client.md run, and print the output in the document."""

import pytest

import tpuserve
from tests import document_blocks, models
from tests.document_blocks import Block

pytestmark = pytest.mark.slow

DOCUMENT = document_blocks.ROOT / "docs/client.md"
BLOCKS = document_blocks.read_blocks(DOCUMENT)


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Run the blocks; the commands measure a server that has the ports of the document."""
    directory = tmp_path_factory.mktemp("client")
    base = models.export(models.half_plus_two, directory / "served").parent
    with tpuserve.serve({"half": base}) as server:
        copy = directory / "client.md"
        copy.write_text(DOCUMENT.read_text().replace("http://localhost:8501", server.rest_url))
        return document_blocks.run_blocks(copy, directory)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_prints_the_output_in_the_document(block: Block, printed: dict[str, str]) -> None:
    document_blocks.check_output(block, printed)


def test_the_table_of_errors_is_that_of_the_client() -> None:
    from tpuserve.client import statuses
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
        assert type(statuses.error_of_code(Code[code_name], "")).__name__ == name
        for number in status.split(","):
            code = statuses.code_of_http_status(int(number))
            assert type(statuses.error_of_code(code, "")).__name__ == name
