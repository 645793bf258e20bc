"""The messages that are read without TensorFlow have TensorFlow's own wire format."""

import pytest
from google.protobuf.descriptor import Descriptor

from tpuserve.proto import saved_model_pb2

pytestmark = pytest.mark.slow

OURS = saved_model_pb2.DESCRIPTOR.message_types_by_name


def theirs(name: str) -> Descriptor:
    from google.protobuf import descriptor_pool
    from tensorflow.core.protobuf import saved_model_pb2  # noqa: F401

    found: Descriptor = descriptor_pool.Default().FindMessageTypeByName(f"tensorflow.{name}")
    return found


def wire(message: Descriptor) -> dict[str, tuple[int, int, bool]]:
    # An enum and an int32 have the same form on the wire.
    kinds = {14: 5}
    return {
        each.name: (each.number, kinds.get(each.type, each.type), each.is_repeated)
        for each in message.fields
    }


@pytest.mark.parametrize("name", sorted(OURS))
def test_fields_have_tensorflows_numbers_and_types(name: str) -> None:
    compare(OURS[name], theirs(name))


def compare(ours: Descriptor, tensorflows: Descriptor) -> None:
    expected = wire(tensorflows)
    for field, form in wire(ours).items():
        assert form == expected[field], f"{ours.name}.{field}"
    for nested in ours.nested_types:
        compare(nested, tensorflows.nested_types_by_name[nested.name])
