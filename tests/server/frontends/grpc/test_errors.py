"""Each canonical error code is mapped to a gRPC status."""

from server.frontends.grpc.errors import GRPC_STATUS, to_utf8, truncate_message
from tpuserve.errors import Code


def test_every_code_has_the_status_of_the_same_name() -> None:
    assert {code.name: status.name for code, status in GRPC_STATUS.items()} == {
        code.name: code.name for code in Code
    }


def test_text_beyond_the_limit_is_truncated() -> None:
    assert truncate_message("n" * 1024) == "n" * 1024
    assert truncate_message("n" * 1025) == "n" * 1024 + "...TRUNCATED"


def test_limit_counts_bytes_and_cuts_no_character() -> None:
    assert truncate_message("a" + "é" * 512) == "a" + "é" * 511 + "...TRUNCATED"


def test_characters_that_utf8_cannot_hold_are_replaced() -> None:
    assert truncate_message("\udcff") == to_utf8("\udcff") == "?"
