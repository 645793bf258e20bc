"""TensorProtos are parsed as the C++ runtime does, and serialised as old clients expect."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tpuserve.errors import InvalidTensor

DT_INVALID, DT_FLOAT, DT_INT8, DT_STRING, DT_RESOURCE = 0, 1, 6, 7, 20


def proto(shape: tuple[int, ...] = (), dtype: int = DT_FLOAT, **fields: Any) -> Any:
    # Imported here, so that a run without slow tests does not import TensorFlow.
    from tensorflow.core.framework import tensor_pb2

    message = tensor_pb2.TensorProto(dtype=dtype, **fields)
    for size in shape:
        message.tensor_shape.dim.add(size=size)
    return message


def decode(message: Any) -> np.ndarray[Any, Any]:
    from server.tensors import tensor_proto

    return tensor_proto.tensor_proto_to_array(message, "x")


EVERY_TYPE = [
    np.array([[1.5, -2.0]], np.float32),
    np.array([0.1]),
    np.array([-7], np.int8),
    np.array([-7], np.int16),
    np.array(-7, np.int32),
    np.array([2**53 + 1]),
    np.array([200], np.uint8),
    np.array([60000], np.uint16),
    np.array([2**32 - 1], np.uint32),
    np.array([2**64 - 1], np.uint64),
    np.array([[True], [False]]),
    np.array([1.5, -2.0], np.float16),
    np.array([1.5, -2.0], ml_dtypes.bfloat16),
    np.array([1 + 2j], np.complex64),
    np.array([1 + 2j]),
    np.array([b"a", b"\xff"], object),
    np.zeros((0, 3), np.float32),
]


@pytest.mark.parametrize("array", EVERY_TYPE, ids=lambda array: str(array.dtype))
def test_every_type_survives_serialising_and_parsing(array: np.ndarray[Any, Any]) -> None:
    from server.tensors import serializer

    message = serializer.array_to_tensor_proto(array)
    assert not message.tensor_content
    decoded = decode(message)
    assert (decoded.dtype, decoded.shape) == (array.dtype, array.shape)
    assert decoded.tolist() == array.tolist()


@pytest.mark.parametrize("as_content", [False, True])
@pytest.mark.parametrize(
    "array",
    [*EVERY_TYPE, np.arange(6.0).reshape(2, 3).T, np.arange(5000, dtype=np.float32)[::2]],
    ids=lambda array: f"{array.dtype} {array.shape}",
)
def test_map_entry_is_read_by_the_api(array: np.ndarray[Any, Any], as_content: bool) -> None:
    from tensorflow_serving.apis import predict_pb2

    from server.tensors import serializer
    from tpuserve.proto import protobuf_wire

    # Serialise twice, because the second call uses the cached prefix of the entry.
    for _ in range(2):
        raw = b"".join(
            serializer.serialize_map_entry(protobuf_wire.field_tag(1), "ä", array, as_content)
        )
        message = predict_pb2.PredictResponse.FromString(raw).outputs["ä"]
        assert bool(message.tensor_content) == (
            as_content and array.dtype != object and array.size > 0
        )
        decoded = decode(message)
        assert (decoded.dtype, decoded.shape) == (array.dtype, array.shape)
        assert decoded.tolist() == array.tolist()


@pytest.mark.parametrize("array", EVERY_TYPE, ids=lambda array: str(array.dtype))
def test_tensorflow_reads_serialised_tensors(array: np.ndarray[Any, Any]) -> None:
    import tensorflow as tf

    from server.tensors import serializer

    assert tf.make_ndarray(serializer.array_to_tensor_proto(array)).tolist() == array.tolist()


@pytest.mark.parametrize("array", EVERY_TYPE[:-2], ids=lambda array: str(array.dtype))
def test_tensor_content_is_parsed(array: np.ndarray[Any, Any]) -> None:
    import tensorflow as tf

    assert decode(tf.make_tensor_proto(array)).tolist() == array.tolist()


def test_strings_in_tensor_content_are_parsed() -> None:
    message = proto((2,), DT_STRING, tensor_content=b"\x01\x02abc")
    assert decode(message).tolist() == [b"a", b"bc"]


def test_array_above_max_bytes_is_refused() -> None:
    from server.tensors import tensor_proto

    message = proto((3,), float_val=[1])
    assert tensor_proto.tensor_proto_to_array(message, "x", max_bytes=12).tolist() == [1, 1, 1]
    with pytest.raises(InvalidTensor):
        tensor_proto.tensor_proto_to_array(message, "x", max_bytes=11)


def test_numbers_are_serialised_as_tensor_content() -> None:
    from server.tensors import serializer

    message = serializer.serialize_tensor(np.array([1, 2], np.int16), as_content=True)
    assert type(proto()).FromString(message).tensor_content == b"\x01\x00\x02\x00"


@pytest.mark.parametrize(
    ("shape", "fields", "expected"),
    [
        ((3,), {"float_val": [1, 2]}, [1, 2, 2]),
        ((2,), {}, [0, 0]),
        ((2,), {"dtype": DT_STRING}, [b"", b""]),
        ((2,), {"dtype": DT_STRING, "string_val": [b"a"]}, [b"a", b"a"]),
        ((1,), {"float_val": [1, 2]}, [1]),
        ((), {"float_val": [5]}, 5),
        ((1,), {"dtype": DT_INT8, "int_val": [300]}, [44]),
    ],
)
def test_short_values_are_extended_to_the_shape(
    shape: tuple[int, ...], fields: dict[str, Any], expected: Any
) -> None:
    assert decode(proto(shape, **fields)).tolist() == expected


@pytest.mark.parametrize(
    ("shape", "fields"),
    [
        ((2,), {"tensor_content": b"abc"}),
        ((2,), {"tensor_content": bytes(4)}),
        ((-1,), {"float_val": [1]}),
        ((2**40, 2**40), {"float_val": [1]}),
        ((2**31,), {"float_val": [1]}),
        ((0, 2**62), {}),
        ((1,) * 100, {"float_val": [1]}),
        ((), {"dtype": DT_INVALID}),
        ((), {"dtype": DT_RESOURCE}),
    ],
)
def test_invalid_tensor_is_refused_with_its_alias(
    shape: tuple[int, ...], fields: dict[str, Any]
) -> None:
    with pytest.raises(InvalidTensor, match="^tensor parsing error: x$"):
        decode(proto(shape, **fields))


def test_unknown_rank_is_refused() -> None:
    message = proto(float_val=[1])
    message.tensor_shape.unknown_rank = True
    with pytest.raises(InvalidTensor):
        decode(message)
