"""The memory of parsed requests is bounded by their structure, closely for large tensors."""

from typing import Any

import numpy as np
import pytest

from server.tensors import parsing_cost
from server.tensors.parsing_cost import EXAMPLES_REQUEST, PREDICT_REQUEST
from tests.server.frontends.grpc.clients import predict_request
from tpuserve.errors import RequestTooLarge
from tpuserve.proto import protobuf_wire

MB = 1 << 20


def bound_bytes(raw: bytes) -> int:
    return parsing_cost.bound_parsed_bytes(raw, PREDICT_REQUEST)


def request_bytes(fill: Any) -> bytes:
    """Return a serialised request whose tensor `fill` has filled."""
    request = predict_request()
    request.inputs["x"].dtype = 1
    fill(request.inputs["x"])
    return bytes(request.SerializeToString())


def test_large_tensor_of_floats_costs_about_its_size() -> None:
    values = np.zeros(MB, np.float32)
    for fill in (
        lambda tensor: setattr(tensor, "tensor_content", values.tobytes()),
        lambda tensor: tensor.float_val.extend(values),
    ):
        raw = request_bytes(fill)
        assert 4 * MB <= bound_bytes(raw) < 4.01 * MB


def test_varints_cost_what_they_become() -> None:
    raw = request_bytes(lambda tensor: tensor.int64_val.extend([1] * MB))
    assert 8 * MB <= bound_bytes(raw) < 8.01 * MB


@pytest.mark.parametrize("size", [1000, 30_000])
def test_empty_strings_and_dimensions_cost_many_times_their_size(size: int) -> None:
    for fill in (
        lambda tensor: tensor.string_val.extend([b""] * size),
        lambda tensor: [tensor.tensor_shape.dim.add() for _ in range(size)],
    ):
        raw = request_bytes(fill)
        assert len(raw) < 3 * size + 100
        assert bound_bytes(raw) > 48 * size


@pytest.mark.parametrize("size", [1000, 30_000])
def test_examples_cost_more_than_their_size(size: int) -> None:
    examples = b"\n\0" * size
    field, tag = protobuf_wire.encode_field, protobuf_wire.field_tag
    for number in (1, 2):
        raw = field(tag(2), field(tag(number), examples))
        assert parsing_cost.bound_parsed_bytes(raw, EXAMPLES_REQUEST) > 48 * size


@pytest.mark.slow
def test_too_many_fields_and_too_long_ones_are_refused() -> None:
    strings = request_bytes(lambda tensor: tensor.string_val.extend([b""] * 1_000_001))
    dimensions = request_bytes(
        lambda tensor: [tensor.tensor_shape.dim.add() for _ in range(40_000)]
    )
    for raw, text in ((strings, "more than 1000000 fields"), (dimensions, "may have 65536")):
        with pytest.raises(RequestTooLarge, match=text):
            bound_bytes(raw)


@pytest.mark.parametrize("position", [0, 100, 70_000])
def test_request_that_cannot_be_parsed_is_bounded_too(position: int) -> None:
    raw = bytearray(request_bytes(lambda tensor: tensor.string_val.extend([b""] * 50_000)))
    raw[position : position + 3] = b"\xff\xff\xff"
    assert bound_bytes(bytes(raw)) > len(raw)
    assert bound_bytes(bytes(raw[:-1])) > len(raw)
