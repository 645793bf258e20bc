"""The messages of the Open Inference Protocol.

`server/proto/open_inference.proto` declares the messages; `make protos` compiles the file into the
descriptor set that this module reads. The messages live in a descriptor pool of their own, because
the protocol's clients, such as tritonclient, register the same names in protobuf's default pool.
"""

from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool

import server.proto

Message: TypeAlias = Any

SERVICE = "inference.GRPCInferenceService"
"""The full name of the service."""

_DESCRIPTOR_SET = Path(server.proto.__path__[0]) / "open_inference.binpb"


@cache
def message_type(name: str) -> type[Message]:
    """Return the class of a message, such as "ModelInferRequest"."""
    descriptor = descriptor_pool().FindMessageTypeByName(f"inference.{name}")
    return message_factory.GetMessageClass(descriptor)


@cache
def descriptor_pool() -> DescriptorPool:
    """Return the pool of the protocol's messages and service."""
    pool = DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(_DESCRIPTOR_SET.read_bytes()).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool
