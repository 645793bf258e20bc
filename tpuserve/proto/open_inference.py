"""Gives access to the protobuf messages of the Open Inference Protocol.

`make protos` compiles open_inference.proto into the descriptor set that this module reads.
"""

from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool

Message: TypeAlias = Any

SERVICE = "inference.GRPCInferenceService"
"""The full name of the service."""

_DESCRIPTOR_SET = Path(__file__).with_suffix(".binpb")


@cache
def message_type(name: str) -> type[Message]:
    """Return the class of the message with a name such as "ModelInferRequest"."""
    descriptor = descriptor_pool().FindMessageTypeByName(f"inference.{name}")
    return message_factory.GetMessageClass(descriptor)


@cache
def descriptor_pool() -> DescriptorPool:
    """Return the descriptor pool with the protocol's messages and service."""
    pool = DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(_DESCRIPTOR_SET.read_bytes()).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool
