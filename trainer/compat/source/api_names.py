"""Lists the symbols of the installed TensorFlow's public API, without importing TensorFlow.

The names are read from the files `__init__.py` of TensorFlow's API. They are dotted paths below
`tf`, for example "train.Saver".
"""

import ast
import functools
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from trainer.compat.source import estimator_names

Version = Literal["v1", "v2"]

# For each version of TensorFlow's API: maps the modules that TensorFlow takes from Keras to their
# directories below tf_keras/api.
_KERAS_MODULES: dict[Version, dict[str, str]] = {
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
    """Return whether a name is public in a version of TensorFlow's API.

    A name below a public class or function counts as public, such as "train.Saver.save".

    Args:
      version: "v1" for the API of TensorFlow 1 (tf.compat.v1), "v2" for that of TensorFlow 2.
    """
    parts = name.split(".")
    if parts[0] == "estimator":
        return _is_estimator_name(parts[1:], version)
    module = ""
    for part in parts:
        if part not in _list_module_names(module, version):
            return False
        module = f"{module}.{part}".lstrip(".")
        if _find_module_file(module, version) is None:
            # Do not check the remaining parts of the name: the parts up to here name a class or
            # function, and every name below a class or function counts as public.
            return True
    return True


def list_sibling_names(name: str, version: Version) -> list[str]:
    """Return the sorted public names of the module to which a name belongs.

    If there is no such module, return the names of the nearest parent module that exists.

    Args:
      name: a dotted path below `tf`, such as "train.Saver", which need not exist.
      version: "v1" for the API of TensorFlow 1 (tf.compat.v1), "v2" for that of TensorFlow 2.
    """
    module = name.rpartition(".")[0]
    while module and _find_module_file(module, version) is None:
        module = module.rpartition(".")[0]
    return sorted(_list_module_names(module, version))


def _is_estimator_name(parts: list[str], version: Version) -> bool:
    namespaces = estimator_names.V1 if version == "v1" else estimator_names.V2
    known_names = set(namespaces) - {""}
    known_names |= {
        f"{path}.{name}".lstrip(".") for path, names in namespaces.items() for name in names
    }
    return not parts or any(".".join(parts[:count]) in known_names for count in (1, 2, 3))


@functools.cache
def _find_package_directory(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def _find_module_file(module: str, version: Version) -> Path | None:
    """Return the file that defines a public module; None if the name is not a module."""
    for name, directory in _KERAS_MODULES[version].items():
        if module == name or module.startswith(f"{name}."):
            keras = _find_package_directory("tf_keras")
            submodule = module[len(name) + 1 :].replace(".", "/")
            return _find_init_file(keras and keras / "api" / directory / submodule)
    root = _find_package_directory("tensorflow")
    if root is None:
        return None
    if not module:
        return root / "_api/v2/compat/v1/__init__.py" if version == "v1" else root / "__init__.py"
    base = "_api/v2/compat/v1" if version == "v1" else "_api/v2"
    return _find_init_file(root / base / module.replace(".", "/"))


def _find_init_file(directory: Path | None) -> Path | None:
    file = directory and directory / "__init__.py"
    return file if file is not None and file.is_file() else None


@functools.cache
def _list_module_names(module: str, version: Version) -> frozenset[str]:
    file = _find_module_file(module, version)
    if file is None:
        return frozenset()
    prefix = f"{module}." if module else ""
    from_keras = {
        name[len(prefix) :]
        for name in _KERAS_MODULES[version]
        if name.startswith(prefix) and "." not in name[len(prefix) :]
    }
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(name for name in _find_bound_names(tree) if name[0] != "_") | from_keras


def _find_bound_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names that an `__init__.py` of TensorFlow's API imports or defines by setattr."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            yield from (alias.asname or alias.name for alias in node.names)
        elif (
            # Match statements such as setattr(_current_module, "flags", flags).
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "setattr"
            and isinstance(node.args[1], ast.Constant)
        ):
            yield str(node.args[1].value)
