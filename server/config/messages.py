"""The messages of TensorFlow Serving's configuration files that its Python package leaves out.

`server/proto/model_server.proto` declares the messages; `make protos` compiles the file into the
descriptor set that this module reads. The messages live in a descriptor pool of their own, because
another package may register the same names in protobuf's default pool.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool

ADAPTER = "tensorflow.serving.SavedModelBundleSourceAdapterConfig"
"""The message that a PlatformConfig holds for the platform "tensorflow"."""

_DESCRIPTOR_SET = Path(__file__).parents[1] / "proto" / "model_server.binpb"
# A text without these words has no message that TensorFlow defines, and needs no TensorFlow. After
# "type_url" a text may hold any message in its binary form.
_TENSORFLOW_WORDS = ("session_config", "experimental_fixed_input_tensors", "type_url")


def new_message(name: str, pool: DescriptorPool | None = None) -> Any:
    """Create an empty message.

    Args:
      name: the name of the message within the package tensorflow.serving.
      pool: a result of `pool_for_text`; None for a pool in which the messages that TensorFlow
        defines have no fields.
    """
    descriptor = (pool or _default_pool()).FindMessageTypeByName(f"tensorflow.serving.{name}")
    return message_factory.GetMessageClass(descriptor)()


def pool_for_text(text: str) -> DescriptorPool:
    """Return a descriptor pool that holds every message which a PlatformConfigMap may contain.

    The slow import of TensorFlow is needed only for a text with a field whose message TensorFlow
    defines. For other texts ConfigProto and NamedTensorProto have no fields in the pool.

    Args:
      text: a PlatformConfigMap in protobuf's text form.
    """
    if any(word in text for word in _TENSORFLOW_WORDS):
        return _make_pool(_tensorflow_files())
    return _default_pool()


@cache
def _default_pool() -> DescriptorPool:
    return _make_pool(())


def _make_pool(files: Iterable[FileDescriptor]) -> DescriptorPool:
    """Create a pool of these .proto files and, where they lack a file, of model_server.binpb's."""
    pool = DescriptorPool()
    names = set()
    for file in files:
        names.add(file.name)
        pool.AddSerializedFile(file.serialized_pb)
    descriptor_set = descriptor_pb2.FileDescriptorSet.FromString(_DESCRIPTOR_SET.read_bytes())
    for declared in descriptor_set.file:
        if declared.name not in names:
            pool.AddSerializedFile(declared.SerializeToString())
    return pool


def _tensorflow_files() -> Iterator[FileDescriptor]:
    """Yield TensorFlow's .proto files for two messages, each file after its imports."""
    from tpuserve.runtime import tf_logging

    tf_logging.import_tensorflow()
    from tensorflow.core.protobuf import config_pb2, named_tensor_pb2

    yielded: set[str] = set()
    for file in (config_pb2.DESCRIPTOR, named_tensor_pb2.DESCRIPTOR):
        yield from _imports_first(file, yielded)


def _imports_first(file: FileDescriptor, yielded: set[str]) -> Iterator[FileDescriptor]:
    if file.name in yielded:
        return
    yielded.add(file.name)
    for imported in file.dependencies:
        yield from _imports_first(imported, yielded)
    yield file
