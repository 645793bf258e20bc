"""The client's TensorProtos are those of TensorFlow."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

from tpuserve.client.apis import tensor_proto
from tpuserve.errors import Code, CodedError, InvalidReply
from tpuserve.proto import prediction_service_pb2 as pb

DTYPES = (
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128", "bool", "string"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
)


def array_of(name: str) -> Any:
    if name == "string":
        array = np.empty((2, 2), object)
        array[:] = [[b"a", b""], [b"\0", b"b\0"]]
        return array
    return np.array([[0, 1, 1], [1, 0, 0]]).astype(tf.as_dtype(name).as_numpy_dtype)


def to_ours(proto: Any) -> pb.TensorProto:
    return pb.TensorProto.FromString(proto.SerializeToString())


@pytest.mark.parametrize("name", DTYPES)
def test_tensorflow_reads_what_the_client_writes(name: str) -> None:
    array, proto = array_of(name), pb.TensorProto()
    tensor_proto.write_array(proto, array, "x")
    result = tf.make_ndarray(tensor_pb2.TensorProto.FromString(proto.SerializeToString()))
    assert result.dtype == array.dtype
    assert result.tolist() == array.tolist()


@pytest.mark.parametrize("name", DTYPES)
def test_the_client_reads_typed_values_and_content(name: str) -> None:
    array = array_of(name)
    # A list is written to the typed field, an array to tensor_content.
    for values in (array, array.ravel().tolist()):
        proto = tf.make_tensor_proto(values, tf.as_dtype(name), array.shape)
        result = tensor_proto.to_array(to_ours(proto), "y")
        assert result.dtype == array.dtype
        assert result.tolist() == array.tolist()


@pytest.mark.parametrize("name", DTYPES)
def test_the_client_reads_what_the_server_writes(name: str) -> None:
    from server.tensors import serializer

    array = array_of(name)
    proto = pb.TensorProto.FromString(serializer.serialize_tensor(array))
    assert tensor_proto.to_array(proto, "y").tolist() == array.tolist()


def test_a_short_list_repeats_its_last_value_and_an_empty_one_is_zeros() -> None:
    short = tensor_pb2.TensorProto(dtype=1, float_val=[1, 2])
    empty = tensor_pb2.TensorProto(dtype=3)
    for proto in (short, empty):
        proto.tensor_shape.dim.add(size=4)
    assert tensor_proto.to_array(to_ours(short), "y").tolist() == [1, 2, 2, 2]
    assert tensor_proto.to_array(to_ours(empty), "y").tolist() == [0, 0, 0, 0]


def test_values_that_do_not_fit_are_refused() -> None:
    proto = tensor_pb2.TensorProto(dtype=1, float_val=[1, 2])
    with pytest.raises(InvalidReply, match=r"'y' do not fill the shape \[\]: 2 values"):
        tensor_proto.to_array(to_ours(proto), "y")
    with pytest.raises(
        CodedError, match="resource", check=lambda error: error.code is Code.UNIMPLEMENTED
    ):
        tensor_proto.to_array(pb.TensorProto(dtype=20), "y")
    with pytest.raises(
        CodedError, match="datetime64", check=lambda error: error.code is Code.UNIMPLEMENTED
    ):
        tensor_proto.write_array(pb.TensorProto(), np.zeros(1, "datetime64[s]"), "x")
