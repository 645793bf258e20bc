"""The messages of TensorFlow Serving's small configuration files.

Its Python package leaves them out. Source: tensorflow_serving/config/ssl_config.proto,
monitoring_config.proto and servables/tensorflow/session_bundle_config.proto.
"""

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2

_PACKAGE = "tensorflow.serving"
_INT64 = ".google.protobuf.Int64Value"
_BOOL = ".google.protobuf.BoolValue"
_STRING = ".google.protobuf.StringValue"

# Message → field → its number and type.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
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


def new(name: str) -> Any:
    """An empty message of one of these kinds."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))()


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    # A pool of its own: another package may bring the same messages into the common one.
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    file = descriptor_pb2.FileDescriptorProto(
        name="server/config.proto",
        package=_PACKAGE,
        syntax="proto3",
        dependency=[wrappers_pb2.DESCRIPTOR.name],
    )
    for message, fields in _MESSAGES.items():
        described = file.message_type.add(name=message)
        for name, (number, kind) in fields.items():
            _add_field(described, name, number, kind)
    pool.AddSerializedFile(file.SerializeToString())
    return pool


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
            "int64": kinds.TYPE_INT64,
        }[words[-1]]
