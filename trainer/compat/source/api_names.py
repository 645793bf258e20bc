"""The public names of the installed TensorFlow, read from its files without importing it.

Names are dotted paths below `tf`: "train.Saver". Those of Keras are read from tf_keras, which is
the Keras that programs run with here.
"""

import ast
import functools
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from trainer.compat.source import estimator_names

Version = Literal["v1", "v2"]

_KERAS_MODULES: dict[Version, dict[str, str]] = {
    # Public names whose modules TensorFlow takes from Keras, and where Keras keeps them.
    "v1": {
        "keras": "_v1/keras",
        "layers": "_v1/keras/__internal__/legacy/layers",
        "nn.rnn_cell": "_v1/keras/__internal__/legacy/rnn_cell",
    },
    "v2": {
        "keras": "_v2/keras",
        "losses": "_v2/keras/losses",
        "metrics": "_v2/keras/metrics",
        "optimizers": "_v2/keras/optimizers",
        "initializers": "_v2/keras/initializers",
    },
}


def is_public_name(name: str, version: Version) -> bool:
    """Whether a name, or what it is an attribute of, is public: "nn.relu", "train.Saver.save".

    Modules that tpuserve supplies count: tf.estimator.
    """
    parts = name.split(".")
    if parts[0] == "estimator":
        return _has_estimator_name(parts[1:], version)
    module = ""
    for part in parts:
        if part not in _names(module, version):
            return False
        module = f"{module}.{part}".lstrip(".")
        if _file(module, version) is None:
            # A class or a function: what it has inside is its own.
            return True
    return True


def list_sibling_names(name: str, version: Version) -> list[str]:
    """The names of the innermost module that a name's path leads to, sorted."""
    module = name.rpartition(".")[0]
    while module and _file(module, version) is None:
        module = module.rpartition(".")[0]
    return sorted(_names(module, version))


def _has_estimator_name(parts: list[str], version: Version) -> bool:
    namespaces = estimator_names.V1 if version == "v1" else estimator_names.V2
    known = {
        ".".join(each for each in pair if each) for each in namespaces for pair in [("", each)]
    }
    known |= {f"{path}.{each}".lstrip(".") for path, names in namespaces.items() for each in names}
    return not parts or any(".".join(parts[:count]) in known for count in (1, 2, 3))


def _root() -> Path | None:
    return _package("tensorflow")


@functools.cache
def _package(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def _file(module: str, version: Version) -> Path | None:
    """The file of a public module; None where the name is no module."""
    for name, place in _KERAS_MODULES[version].items():
        if module == name or module.startswith(f"{name}."):
            keras = _package("tf_keras")
            inside = module[len(name) + 1 :].replace(".", "/")
            return _init(keras and keras / "api" / place / inside)
    root = _root()
    if root is None:
        return None
    if not module:
        return root / "_api/v2/compat/v1/__init__.py" if version == "v1" else root / "__init__.py"
    base = "_api/v2/compat/v1" if version == "v1" else "_api/v2"
    return _init(root / base / module.replace(".", "/"))


def _init(directory: Path | None) -> Path | None:
    file = directory and directory / "__init__.py"
    return file if file is not None and file.is_file() else None


@functools.cache
def _names(module: str, version: Version) -> frozenset[str]:
    file = _file(module, version)
    if file is None:
        return frozenset()
    inside = f"{module}." if module else ""
    from_keras = {
        name[len(inside) :]
        for name in _KERAS_MODULES[version]
        if name.startswith(inside) and "." not in name[len(inside) :]
    }
    source = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(each for each in _bound(source) if not each.startswith("_")) | from_keras


def _bound(source: ast.Module) -> Iterator[str]:
    # Dunder names such as tf.__version__ are bound elsewhere, and the same in both versions.
    for node in ast.walk(source):
        if isinstance(node, ast.ImportFrom | ast.Import):
            yield from (each.asname or each.name for each in node.names)
        elif (
            # setattr(_current_module, "flags", flags)
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "setattr"
            and isinstance(node.args[1], ast.Constant)
        ):
            yield str(node.args[1].value)
