"""Large requests are read from their bytes with the same result as by a protobuf parser."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.server.tensors.test_tensor_proto import EVERY_TYPE
from tpuserve.errors import InvalidTensor, RequestTooLarge
from tpuserve.proto.protobuf_wire import encode_field, encode_varint, field_tag

VARINT, I32 = 0, 5
FLOAT, INT8, STRING, INT64, BOOL = b"\x08\x01", b"\x08\x06", b"\x08\x07", b"\x08\x09", b"\x08\x0a"
SHAPE_2 = b"\x12\x04\x12\x02\x08\x02"
ONE, TWO = np.float32(1).tobytes(), np.float32(2).tobytes()


def field(number: int, content: bytes) -> bytes:
    return encode_field(field_tag(number), content)


def request_with(*tensors: bytes, name: bytes = b"x") -> bytes:
    """Return a PredictRequest with one input, whose tensors a parser merges."""
    return field(2, field(1, name) + b"".join(field(2, tensor) for tensor in tensors))


def read_request(raw: bytes) -> tuple[Any, Mapping[str, Any]]:
    from server.tensors.large_predict_request import read_predict_request

    request = read_predict_request(raw, lambda num_bytes: None)
    return request.message, request.inputs


def arrays_of(protos: Mapping[str, Any]) -> dict[str, Any]:
    from server.tensors.tensor_proto import tensor_proto_to_array

    arrays = {name: tensor_proto_to_array(proto, name) for name, proto in sorted(protos.items())}
    return {name: (array.dtype, array.tolist()) for name, array in arrays.items()}


def parse_with_protobuf(raw: bytes) -> Any:
    from tensorflow_serving.apis import predict_pb2

    return predict_pb2.PredictRequest.FromString(raw)


def assert_read_as_parsed(raw: bytes) -> dict[str, Any]:
    message, inputs = read_request(raw)
    expected = parse_with_protobuf(raw)
    arrays = arrays_of(inputs)
    assert str(arrays) == str(arrays_of(expected.inputs))  # Compare texts, in which NaN equals NaN.
    expected.ClearField("inputs")
    assert message == expected
    return arrays


@pytest.mark.parametrize("as_content", [False, True])
def test_every_type_is_read_as_by_protobuf(as_content: bool) -> None:
    from server.tensors import serializer

    raw = b"".join(
        chunk
        for index, array in enumerate(EVERY_TYPE)
        for chunk in serializer.serialize_map_entry(field_tag(2), f"ä{index}", array, as_content)
    )
    spec = field(1, field(1, b"half") + field(3, b"serve"))
    arrays = assert_read_as_parsed(spec + bytes(raw) + field(3, b"y"))
    assert len(arrays) == len(EVERY_TYPE)


UNUSUAL = {
    "not packed": FLOAT + SHAPE_2 + b"\x2d" + ONE + b"\x2d" + TWO,
    "packed twice": FLOAT + SHAPE_2 + field(5, ONE) + field(5, TWO),
    "packed and not": FLOAT + SHAPE_2 + field(5, ONE) + b"\x2d" + TWO,
    "integers of other sizes": INT64 + SHAPE_2 + b"\x50\x01" + field(10, b"\xff" * 9 + b"\x01"),
    "bits that do not fit": INT8 + SHAPE_2 + field(7, b"\x80\x02" + b"\xff\x7f"),
    "numbers as bool": BOOL + SHAPE_2 + field(11, b"\x80\x02\0"),
    "last content counts": FLOAT + SHAPE_2 + field(4, ONE) + field(4, ONE + TWO),
    "more values than elements": FLOAT + field(5, ONE + TWO),
    "fewer values than elements": FLOAT + SHAPE_2 + field(5, ONE),
    "another wire type": FLOAT + SHAPE_2 + b"\x28\x07" + field(5, ONE),
    "unknown field": FLOAT + field(99, b"?") + field(5, ONE),
    "strings": STRING + SHAPE_2 + field(8, b"a") + field(8, b"\xff"),
    "strings as content": STRING + SHAPE_2 + field(4, b"\x01\x01ab"),
}


@pytest.mark.parametrize("tensor", UNUSUAL.values(), ids=UNUSUAL)
def test_unusual_but_valid_fields_are_read_as_by_protobuf(tensor: bytes) -> None:
    assert_read_as_parsed(request_with(tensor))


def test_tensors_are_merged_and_the_last_entry_of_a_name_counts() -> None:
    merged = request_with(FLOAT + field(5, ONE), SHAPE_2 + field(5, TWO))
    assert assert_read_as_parsed(merged) == {"x": (np.float32, [1, 2])}
    assert assert_read_as_parsed(merged + request_with(FLOAT)) == {"x": (np.float32, 0)}


@pytest.mark.parametrize(
    "raw",
    [
        b"\x12\x05",
        field(2, b"\x0a\x7f"),
        b"\0\0",
        request_with(field(5, b"123")),
        request_with(b"", name=b"\xff"),
        request_with(b"\x12\x03\x12\x08\x01"),
        encode_varint(2**33) + b"\0",
    ],
)
def test_invalid_request_is_refused(raw: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_with_protobuf(raw)
    with pytest.raises(DecodeError):
        read_request(raw)


@pytest.mark.parametrize("varints", [b"\x80", b"\x01" + b"\xff" * 10 + b"\x01"])
def test_invalid_varints_are_refused(varints: bytes) -> None:
    _, inputs = read_request(request_with(INT64 + SHAPE_2 + field(10, varints)))
    with pytest.raises(InvalidTensor):
        arrays_of(inputs)


@given(st.sampled_from(sorted(UNUSUAL)), st.integers(0, 60), st.integers(0, 255))
@settings(max_examples=500, deadline=None, derandomize=True)
def test_changed_bytes_are_read_as_by_protobuf_or_refused(name: str, place: int, byte: int) -> None:
    tensor = bytearray(UNUSUAL[name])
    tensor[place % len(tensor)] = byte
    raw = request_with(bytes(tensor))
    try:
        read_request(raw)
    except DecodeError:
        return
    try:
        arrays_of(parse_with_protobuf(raw).inputs)
    except (DecodeError, InvalidTensor):
        return
    assert_read_as_parsed(raw)


def test_varints_of_many_sizes_are_decoded_in_chunks() -> None:
    from tpuserve.proto import protobuf_wire

    numbers = np.array([1, 200, 2**40, 2**63 - 1] * 50_000, np.int64)
    raw = b"".join(map(encode_varint, numbers.tolist()))
    octets = np.frombuffer(raw, np.uint8)
    decoded = protobuf_wire.decode_varints(octets, np.dtype(np.int64), 150_000)
    np.testing.assert_array_equal(decoded, numbers[:150_000])


def test_large_array_is_aligned_for_tensorflow_and_its_content_was_not_copied_before() -> None:
    from server.tensors.tensor_proto import tensor_proto_to_array

    raw = request_with(FLOAT + b"\x12\x06\x12\x04\x08\x80\x80\x10" + field(4, bytes(1 << 20)))
    _, inputs = read_request(raw)
    assert inputs["x"].tensor_content.obj is raw
    assert tensor_proto_to_array(inputs["x"], "x").ctypes.data % 64 == 0


def test_memory_of_the_values_is_reserved_before_they_are_read() -> None:
    from server.tensors.large_predict_request import read_predict_request

    reserved: list[int] = []
    content = request_with(FLOAT + field(4, bytes(1 << 20)))
    read_predict_request(content, reserved.append)
    read_predict_request(request_with(field(8, b"") * 1000), reserved.append)
    read_predict_request(request_with(field(10, bytes(1000))), reserved.append)
    assert 1 << 20 <= reserved[0] < 1.01 * (1 << 20)
    assert reserved[1] >= 64_000
    assert 8000 <= reserved[2] < 10_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (field(8, b"") * 1_000_001, "more than 1000000 fields"),
        (field(2, bytes(1 << 17)), "may have 65536"),
        (field(2, b"\x12\0" * (1 << 14)) * 33, "more than 1048576 bytes together"),
    ],
)
def test_too_many_fields_and_too_long_ones_are_refused(tensor: bytes, text: str) -> None:
    with pytest.raises(RequestTooLarge, match=text):
        read_request(request_with(tensor))
