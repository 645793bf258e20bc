"""Requests with examples, read with the examples left as bytes.

They are passed on to the model as they came, so that parsing and writing them again would cost
time, and could change them. These messages are the API's on the wire, but for the type of that
field.

Source: tensorflow_serving/apis/input.proto, classification.proto, inference.proto.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorflow_serving.apis import inference_pb2, model_pb2

_PACKAGE = "tpuserve.server"
_BYTES = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
_MESSAGE = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
_ONE = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
_MANY = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED


def read_examples(sent: Any) -> list[bytes]:
    """The serialized examples of an Input, each with the context, if there is one, before it.

    Two messages in a row merge, so that the example wins where both have a feature.
    """
    kind = sent.WhichOneof("kind")
    if kind == "example_list":
        return list(sent.example_list.examples)
    with_context = sent.example_list_with_context
    context = with_context.context
    return [context + each for each in with_context.examples]


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="tpuserve/server/serialized_input.proto", package=_PACKAGE, syntax="proto3"
    )
    file.dependency.append(model_pb2.DESCRIPTOR.name)
    file.dependency.append(inference_pb2.DESCRIPTOR.name)
    _add(file, "Examples", ("examples", 1, _MANY, ""))
    _add(file, "ExamplesWithContext", ("examples", 1, _MANY, ""), ("context", 2, _ONE, ""))
    kinds = _add(
        file,
        "Input",
        ("example_list", 1, _ONE, f".{_PACKAGE}.Examples"),
        ("example_list_with_context", 2, _ONE, f".{_PACKAGE}.ExamplesWithContext"),
    )
    kinds.oneof_decl.add(name="kind")
    for field in kinds.field:
        field.oneof_index = 0
    sent = ("input", 2, _ONE, f".{_PACKAGE}.Input")
    _add(file, "ExamplesRequest", ("model_spec", 1, _ONE, ".tensorflow.serving.ModelSpec"), sent)
    _add(file, "TasksRequest", ("tasks", 1, _MANY, ".tensorflow.serving.InferenceTask"), sent)
    return file


def _add(
    file: descriptor_pb2.FileDescriptorProto, name: str, *fields: tuple[str, int, Any, str]
) -> descriptor_pb2.DescriptorProto:
    message = file.message_type.add(name=name)
    for field, number, label, type_name in fields:
        added = message.field.add(name=field, number=number, label=label, type=_BYTES)
        if type_name:
            added.type, added.type_name = _MESSAGE, type_name
    return message


def _message(name: str) -> Any:
    found = descriptor_pool.Default().FindMessageTypeByName(f"{_PACKAGE}.{name}")
    return message_factory.GetMessageClass(found)


descriptor_pool.Default().AddSerializedFile(_file().SerializeToString())

ExamplesRequest: Any = _message("ExamplesRequest")
"""A ClassificationRequest or RegressionRequest."""

TasksRequest: Any = _message("TasksRequest")
"""A MultiInferenceRequest."""
