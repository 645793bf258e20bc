"""The protobuf messages of TensorFlow Serving's configuration files, without importing TensorFlow.

`server/proto/model_server.proto` declares the messages; `make protos` compiles the file into the
descriptor set that this module reads.
"""

import ast
import importlib.util
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool

# The generated modules of the two .proto files of TensorFlow whose messages can occur in
# configuration files.
_MODULES = ("tensorflow.core.protobuf.config_pb2", "tensorflow.core.protobuf.named_tensor_pb2")


def read_serialized_files() -> Iterator[bytes]:
    """Yield serialised FileDescriptorProtos for the messages ConfigProto and NamedTensorProto.

    Each .proto file comes after the .proto files that it imports. The .proto files of protobuf
    itself are not included.
    """
    spec = importlib.util.find_spec("tensorflow")
    assert spec is not None
    assert spec.submodule_search_locations is not None, "tensorflow is not a package"
    site = Path(spec.submodule_search_locations[0]).parent
    read_modules: set[str] = set()
    for module in _MODULES:
        yield from _read_module(site, module, read_modules)


def _read_module(site: Path, module: str, read_modules: set[str]) -> Iterator[bytes]:
    if module in read_modules:
        return
    read_modules.add(module)
    tree = ast.parse((site / (module.replace(".", "/") + ".py")).read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            name = node.names[0].name
            if (node.module or "").startswith("tensorflow.") and name != "*":
                yield from _read_module(site, f"{node.module}.{name}", read_modules)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "AddSerializedFile":
            yield ast.literal_eval(node.args[0])


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
    return _make_pool(read_serialized_files())


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
