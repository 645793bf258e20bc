"""The messages that are read without TensorFlow have TensorFlow's own wire format."""

from typing import Any

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor
from tensorflow.core.protobuf import saved_model_pb2 as tensorflows_saved_model  # noqa: F401
from tensorflow.core.protobuf import tensor_bundle_pb2  # noqa: F401
from tensorflow_serving.apis import get_model_status_pb2  # noqa: F401
from tensorflow_serving.apis import prediction_log_pb2 as servings
from tensorflow_serving.apis import prediction_service_pb2 as servings_service  # noqa: F401

from tpuserve.proto import prediction_log_pb2, prediction_service_pb2, saved_model_pb2

OURS: dict[str, Descriptor] = {
    **saved_model_pb2.DESCRIPTOR.message_types_by_name,
    **prediction_log_pb2.DESCRIPTOR.message_types_by_name,
}


# The messages that TensorFlow Serving defines; the others are TensorFlow's.
SERVINGS = {
    *prediction_log_pb2.DESCRIPTOR.message_types_by_name,
    *prediction_service_pb2.DESCRIPTOR.message_types_by_name,
} - {
    *("Example", "Features", "Feature", "BytesList", "FloatList", "Int64List"),
    *("NamedTensorProto", "TensorProto"),
}


def theirs(name: str) -> Descriptor:
    package = "tensorflow.serving" if name in SERVINGS else "tensorflow"
    descriptor: Descriptor = descriptor_pool.Default().FindMessageTypeByName(f"{package}.{name}")
    return descriptor


def wire(message: Descriptor) -> dict[str, tuple[Any, ...]]:
    # Treat an enum (field type 14) as an int32 (5), because both have the same wire format.
    kinds = {14: 5}
    return {
        field.name: (
            field.number,
            kinds.get(field.type, field.type),
            field.is_repeated,
            field.message_type.name if field.message_type else None,
        )
        for field in message.fields
    }


@pytest.mark.parametrize("name", sorted(OURS))
def test_fields_have_tensorflows_numbers_and_types(name: str) -> None:
    compare(OURS[name], theirs(name))


CLIENTS: dict[str, Descriptor] = {**prediction_service_pb2.DESCRIPTOR.message_types_by_name}
# The fields of the client's TensorProto that hold packed numbers as bytes.
PACKED = {"float_val", "double_val", "scomplex_val", "dcomplex_val", "bool_val"}


@pytest.mark.parametrize("name", sorted(set(CLIENTS) - {"TensorProto"}))
def test_fields_of_the_client_have_tensorflows_numbers_and_types(name: str) -> None:
    compare(CLIENTS[name], theirs(name))


def test_the_clients_tensor_holds_packed_numbers_as_bytes() -> None:
    expected = theirs("TensorProto")
    for name, (number, kind, is_repeated, _) in wire(CLIENTS["TensorProto"]).items():
        field = expected.fields_by_name[name]
        assert (number, is_repeated) == (field.number, field.is_repeated)
        assert field.is_packed if name in PACKED else kind == wire(expected)[name][1], name


def compare(ours: Descriptor, tensorflows: Descriptor) -> None:
    expected = wire(tensorflows)
    for field, form in wire(ours).items():
        assert form == expected[field], f"{ours.name}.{field}"
    for nested in ours.nested_types:
        compare(nested, tensorflows.nested_types_by_name[nested.name])


def test_a_log_that_serving_wrote_is_read_and_written_back_unchanged() -> None:
    log = servings.PredictionLog()
    request = log.predict_log.request
    request.model_spec.name = "half"
    request.model_spec.version.value = 3
    request.inputs["x"].dtype = 1
    request.inputs["x"].tensor_shape.dim.add().size = 2
    request.inputs["x"].float_val.extend([0.5, 1.5])
    read = prediction_log_pb2.PredictionLog.FromString(log.SerializeToString())
    assert read.predict_log.request.inputs["x"].tensor_shape.dim[0].size == 2
    assert servings.PredictionLog.FromString(read.SerializeToString()) == log
