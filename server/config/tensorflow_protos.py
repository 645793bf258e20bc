"""Reads TensorFlow's .proto files from the installed package, without importing TensorFlow."""

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

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
