"""The model of a request is found without parsing the request."""

import gzip
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.frontends.grpc.services.model_name import read_model_name, read_model_name_of_tasks
from tpuserve.proto.protobuf_wire import encode_field, field_tag

TAG1, TAG2, TAG3 = field_tag(1), field_tag(2), field_tag(3)
SPEC = encode_field(TAG1, encode_field(TAG1, b"half") + encode_field(TAG3, b"signature"))
INPUT = encode_field(TAG2, bytes(300))
VERSION = encode_field(TAG1, encode_field(TAG2, b"\x08\x07"))


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (SPEC + INPUT, "half"),
        (INPUT + SPEC, "half"),
        (SPEC + INPUT + encode_field(TAG1, encode_field(TAG1, b"other")), "other"),
        (SPEC + INPUT + VERSION, "half"),
        (b"\x10\x96\x01" + b"\x19" + bytes(8) + b"\x1d" + bytes(4) + SPEC, "half"),
        (field_tag(2000) + b"\x01x" + SPEC, "half"),
        (encode_field(TAG1, encode_field(TAG1, "süß".encode())), "süß"),
        (gzip.compress(SPEC + INPUT, mtime=0), "half"),
        (zlib.compress(SPEC + INPUT), "half"),
        (INPUT, ""),
        (VERSION, ""),
        (b"", ""),
        (SPEC[:5], "h"),
        (b"\x0f" + SPEC, ""),
        (b"\x10" + b"\xff" * 20, ""),
        (b"\x1f\x8b" + SPEC, ""),
        (b"\x10\x00" * 300 + SPEC, ""),
    ],
)
def test_name_is_that_which_a_parser_would_read(raw: bytes, name: str) -> None:
    assert read_model_name(raw) == name


def test_of_several_tasks_the_first_counts() -> None:
    tasks = encode_field(TAG1, SPEC + encode_field(TAG2, b"classify")) + encode_field(TAG1, b"")
    assert read_model_name_of_tasks(tasks + INPUT) == "half"
    assert read_model_name_of_tasks(INPUT) == ""


@settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=200))
def test_any_bytes_have_a_name(raw: bytes) -> None:
    assert isinstance(read_model_name(raw), str)
    assert isinstance(read_model_name_of_tasks(raw), str)
