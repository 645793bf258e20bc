"""The messages of TensorFlow Serving's configuration files, without an import of TensorFlow.

`server/proto/model_server.proto` declares the messages; `make protos` compiles the file into the
descriptor set that this module reads. The messages live in a descriptor pool of their own, because
another package may register the same names in protobuf's default pool.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool

from server.config import tensorflow_protos

ADAPTER = "tensorflow.serving.SavedModelBundleSourceAdapterConfig"
"""The message that a PlatformConfig holds for the platform "tensorflow"."""

_DESCRIPTOR_SET = Path(__file__).parents[1] / "proto" / "model_server.binpb"
# A text without these words has no message that TensorFlow defines. After "type_url" a text may
# hold any message in its binary form.
_TENSORFLOW_WORDS = ("session_config", "experimental_fixed_input_tensors", "type_url")


def new_message(name: str, pool: DescriptorPool | None = None) -> Any:
    """Create an empty message.

    Args:
      name: the name of the message, with its package or within the package tensorflow.serving.
      pool: a result of `pool_for_text`; None for a pool in which the messages that TensorFlow
        defines have no fields.
    """
    full_name = name if "." in name else f"tensorflow.serving.{name}"
    descriptor = (pool or default_pool()).FindMessageTypeByName(full_name)
    return message_factory.GetMessageClass(descriptor)()


def pool_for_text(text: str) -> DescriptorPool:
    """Return a descriptor pool that holds every message which a PlatformConfigMap may contain.

    Without a field whose message TensorFlow defines, TensorFlow's .proto files are not read: then
    ConfigProto and NamedTensorProto have no fields in the pool.

    Args:
      text: a PlatformConfigMap in protobuf's text form.
    """
    if any(word in text for word in _TENSORFLOW_WORDS):
        return tensorflow_pool()
    return default_pool()


@cache
def tensorflow_pool() -> DescriptorPool:
    """Return the pool in which the messages that TensorFlow defines have their fields."""
    return _make_pool(tensorflow_protos.read_serialized_files())


@cache
def default_pool() -> DescriptorPool:
    """Return the pool in which the messages that TensorFlow defines have no fields."""
    return _make_pool(())


def _make_pool(serialized_files: Iterable[bytes]) -> DescriptorPool:
    """Create a pool of these .proto files and, where they lack a file, of model_server.binpb's.

    Args:
      serialized_files: serialised FileDescriptorProtos, each after its imports.
    """
    declared = descriptor_pb2.FileDescriptorSet.FromString(_DESCRIPTOR_SET.read_bytes()).file
    # protobuf's own files first, because TensorFlow's import them.
    files = [file for file in declared if file.name.startswith("google/")]
    files += map(descriptor_pb2.FileDescriptorProto.FromString, serialized_files)
    files += declared
    pool = DescriptorPool()
    names = set()
    for file in files:
        if file.name not in names:
            names.add(file.name)
            pool.AddSerializedFile(file.SerializeToString())
    return pool
