"""Every code of an error has its gRPC status."""

from server.frontends.grpc.errors import GRPC_STATUS, to_utf8, truncate_message
from tpuserve.errors import Code


def test_every_code_is_mapped_to_its_namesake() -> None:
    assert {code.name: status.name for code, status in GRPC_STATUS.items()} == {
        code.name: code.name for code in Code
    }


def test_text_up_to_the_limit_is_left_whole() -> None:
    assert truncate_message("n" * 1024) == "n" * 1024
    assert truncate_message("n" * 1025) == "n" * 1024 + "...TRUNCATED"


def test_limit_counts_bytes_and_leaves_characters_whole() -> None:
    assert truncate_message("a" + "é" * 512) == "a" + "é" * 511 + "...TRUNCATED"


def test_text_that_is_no_unicode_is_told_all_the_same() -> None:
    assert truncate_message("\udcff") == to_utf8("\udcff") == "?"
