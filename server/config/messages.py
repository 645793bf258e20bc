"""The messages of TensorFlow Serving's small configuration files.

Its Python package leaves them out. Source: tensorflow_serving/config/ssl_config.proto,
monitoring_config.proto and servables/tensorflow/session_bundle_config.proto.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2

FILE = "server/config.proto"
"""Where the messages of this module are declared, for others that have fields of their kinds."""

_PACKAGE = "tensorflow.serving"
_INT64 = ".google.protobuf.Int64Value"
_BOOL = ".google.protobuf.BoolValue"
_STRING = ".google.protobuf.StringValue"

# Message → field → its number and type.
_MESSAGES: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "SSLConfig": {
        "server_key": (1, "string"),
        "server_cert": (2, "string"),
        "custom_ca": (3, "string"),
        "client_verify": (4, "bool"),
    },
    "PrometheusConfig": {"enable": (1, "bool"), "path": (2, "string")},
    "MonitoringConfig": {"prometheus_config": (1, f".{_PACKAGE}.PrometheusConfig")},
    "BatchingParameters": {
        "max_batch_size": (1, _INT64),
        "batch_timeout_micros": (2, _INT64),
        "max_enqueued_batches": (3, _INT64),
        "num_batch_threads": (4, _INT64),
        "thread_pool_name": (5, _STRING),
        "allowed_batch_sizes": (6, "repeated int64"),
        "pad_variable_length_inputs": (7, "bool"),
        "enable_large_batch_splitting": (8, _BOOL),
        "max_execution_batch_size": (9, _INT64),
    },
}


def new(name: str, pool: descriptor_pool.DescriptorPool | None = None) -> Any:
    """An empty message of one of these kinds, or of those of a pool that has more."""
    found = (pool or _pool()).FindMessageTypeByName(f"{_PACKAGE}.{name}")
    return message_factory.GetMessageClass(found)()


def make_pool() -> descriptor_pool.DescriptorPool:
    """A pool with these messages, to which more can be added.

    It is one of its own: another package may bring the same messages into the common one.
    """
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    declare(pool, FILE, _MESSAGES, [wrappers_pb2.DESCRIPTOR.name])
    return pool


def declare(
    pool: descriptor_pool.DescriptorPool,
    file_name: str,
    messages: Mapping[str, Mapping[str, tuple[int, str]]],
    dependencies: Sequence[str],
) -> None:
    """Adds messages of the package tensorflow.serving to a pool.

    Args:
      messages: message → field → its number and type; ".package.Message" for a message, with
        "repeated " before it for many.
      dependencies: names of the files with the messages that these have fields of.
    """
    file = descriptor_pb2.FileDescriptorProto(
        name=file_name, package=_PACKAGE, syntax="proto3", dependency=dependencies
    )
    for message, fields in messages.items():
        described = file.message_type.add(name=message)
        for name, (number, kind) in fields.items():
            _add_field(described, name, number, kind)
    pool.AddSerializedFile(file.SerializeToString())


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    return make_pool()


def _add_field(message: descriptor_pb2.DescriptorProto, name: str, number: int, kind: str) -> None:
    field = message.field.add(name=name, number=number)
    words = kind.split()
    kinds = descriptor_pb2.FieldDescriptorProto
    field.label = kinds.LABEL_REPEATED if words[0] == "repeated" else kinds.LABEL_OPTIONAL
    if words[-1].startswith("."):
        field.type, field.type_name = kinds.TYPE_MESSAGE, words[-1]
    else:
        field.type = {
            "string": kinds.TYPE_STRING,
            "bool": kinds.TYPE_BOOL,
            "int32": kinds.TYPE_INT32,
            "int64": kinds.TYPE_INT64,
            "uint64": kinds.TYPE_UINT64,
        }[words[-1]]
