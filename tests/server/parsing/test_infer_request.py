"""An infer request is decoded alike in this process and in a parse process."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from server.admission.memory_budget import MemoryBudget
from server.codec import json_parser
from server.codec.infer_request import InferInput, decode_infer_request
from server.parsing.request_parser import MAX_LOCAL_BYTES, RequestParser
from server.request import RequestContext
from tpuserve.errors import InvalidJson, InvalidTensor, RequestTooLarge

# A name that no output has, so long that a body with it is parsed in a process.
LONG = "a" * MAX_LOCAL_BYTES


@pytest.fixture(scope="module")
def parser() -> Iterator[RequestParser]:
    parser = RequestParser(1)
    yield parser
    parser.close()


def encode(*inputs: dict[str, Any], **members: Any) -> bytes:
    return json.dumps({"inputs": inputs, **members}).encode()


def test_large_request_is_decoded_as_a_small_one(parser: RequestParser) -> None:
    x = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2.5]}
    text = {"name": "t", "datatype": "BYTES", "shape": [2], "data": ["ü", ""]}
    raw = {"name": "r", "datatype": "BF16", "shape": [1]}
    body = encode(
        x,
        text,
        {**raw, "parameters": {"binary_data_size": 2}},
        id=LONG,
        outputs=[{"name": "y", "parameters": {"binary_data": True}}],
        parameters={"signature_name": "s", "timeout": 5},
    )
    budget = MemoryBudget(10**9)
    with budget.reserve() as reservation:
        remote = parser.parse_infer_request(body, RequestContext(memory=reservation))
        local = decode_infer_request(json_parser.parse_json(body))
        assert remote._replace(arrays={}) == local._replace(arrays={})
        assert remote.inputs[2] == InferInput("r", "BF16", (1,), 2)
        assert remote.arrays.keys() == {"x", "t"}
        assert remote.arrays["x"].tolist() == [[1.0, 2.5]]
        assert remote.arrays["t"].tolist() == ["ü".encode(), b""]


@pytest.mark.parametrize(
    ("body", "error", "text"),
    [
        (b'{"inputs": "' + LONG.encode() + b'"}', InvalidJson, "Send a list"),
        (b'"' + LONG.encode() + b'"', InvalidJson, "no JSON object"),
        (
            encode({"name": LONG, "datatype": "FP32", "shape": [1], "data": [1]}),
            InvalidJson,
            "name of input 0 has 131072 characters",
        ),
        (
            encode({"name": "x", "datatype": "FP16", "shape": [1], "data": [1]}, id=LONG),
            InvalidTensor,
            "JSON cannot hold",
        ),
    ],
)
def test_error_of_a_large_request_is_that_of_a_small_one(
    parser: RequestParser, body: bytes, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        parser.parse_infer_request(body, RequestContext())


@pytest.mark.parametrize("size", [8 << 10, 2 * MAX_LOCAL_BYTES])
def test_request_beyond_the_memory_is_refused(parser: RequestParser, size: int) -> None:
    budget = MemoryBudget(4096)
    body = encode({"name": "x", "datatype": "BYTES", "shape": [1], "data": ["a" * size]})
    with budget.reserve() as reservation, pytest.raises(RequestTooLarge):
        parser.parse_infer_request(body, RequestContext(memory=reservation))
