"""The protobuf messages of TensorFlow Serving's configuration files, without importing TensorFlow.

`server/proto/model_server.proto` declares the messages; `make protos` compiles the file into the
descriptor set that this module reads.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool

from server.config import tensorflow_protos

ADAPTER = "tensorflow.serving.SavedModelBundleSourceAdapterConfig"
"""The name of the message that a PlatformConfig message holds for the platform "tensorflow"."""

_DESCRIPTOR_SET = Path(__file__).parents[1] / "proto" / "model_server.binpb"
# A platform config file needs the message definitions of TensorFlow only if its text contains one
# of these words. The first two are the fields whose type is a message of TensorFlow.
_TENSORFLOW_WORDS = ("session_config", "experimental_fixed_input_tensors", "type_url")


def new_message(name: str, pool: DescriptorPool | None = None) -> Any:
    """Create an empty message of a configuration file.

    Args:
      pool: the descriptor pool that defines the message. None for `default_pool`, which suffices
        for every file that contains no message of TensorFlow itself, such as ConfigProto.
    """
    full_name = name if "." in name else f"tensorflow.serving.{name}"
    descriptor = (pool or default_pool()).FindMessageTypeByName(full_name)
    return message_factory.GetMessageClass(descriptor)()


def pool_for_text(text: str) -> DescriptorPool:
    """Return the descriptor pool with which a PlatformConfigMap can be parsed.

    The pool is `tensorflow_pool` if the text needs TensorFlow's messages.
    """
    if any(word in text for word in _TENSORFLOW_WORDS):
        return tensorflow_pool()
    return default_pool()


@cache
def tensorflow_pool() -> DescriptorPool:
    """Return the pool with the full definitions of TensorFlow's messages, such as ConfigProto."""
    return _make_pool(tensorflow_protos.read_serialized_files())


@cache
def default_pool() -> DescriptorPool:
    """Return the pool for configuration files that contain no message of TensorFlow.

    The pool declares TensorFlow's messages without fields, because other messages refer to them.
    """
    return _make_pool(())


def _make_pool(serialized_files: Iterable[bytes]) -> DescriptorPool:
    """Create a descriptor pool of `serialized_files` and of the files in model_server.binpb."""
    declared = descriptor_pb2.FileDescriptorSet.FromString(_DESCRIPTOR_SET.read_bytes()).file
    # Add the .proto files of protobuf itself first, because TensorFlow's .proto files import them.
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
