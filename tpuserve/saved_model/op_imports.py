"""Imports the packages and libraries that register ops for TensorFlow.

TensorFlow keeps the ops for the whole process. A library cannot be unloaded.
"""

import importlib
import importlib.util
import logging
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from tpuserve import tensorflow_internals
from tpuserve.errors import InvalidSetting, UnsupportedModel
from tpuserve.saved_model.op_packages import (
    KNOWN_PACKAGES,
    TENSORFLOW_TEXT,
    ImportedOps,
    OpsNotImported,
    check_imported,
    find_package,
    is_installed,
)

Result = TypeVar("Result")

# Package → the pattern of its op libraries. They are loaded without the package where they are
# found: the Python code of tensorflow_text imports Keras, which takes seconds and 300 MB.
_LIBRARIES = {TENSORFLOW_TEXT: "python/*/_*.so"}

# Held while ops are registered, so that `imported` tells of no package that is half imported.
_lock = threading.RLock()
_packages: set[str] = set()
# Package or library that the user has named → the ops that it has registered.
_named: dict[str, frozenset[str]] = {}

logger = logging.getLogger(__name__)


def parse_names(texts: str | Iterable[str]) -> tuple[str, ...]:
    """Return the names of packages and the paths of libraries in texts that commas divide."""
    names = ",".join([texts] if isinstance(texts, str) else texts).split(",")
    return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))


def is_library(name: str) -> bool:
    """Return whether a name is the path of a library, and not the name of a Python package."""
    return "/" in name or name.endswith((".so", ".dylib"))


def need_python(names: Iterable[str]) -> bool:
    """Return whether Python code is run to register the ops of any of the names."""
    return any(not _libraries(name) for name in names)


def check_names(names: Iterable[str]) -> None:
    """Check that the packages are installed and the libraries exist, without TensorFlow.

    Raises:
      InvalidSetting: a package or a library is missing.
    """
    for name in names:
        if is_library(name):
            if not Path(name).is_file():
                raise InvalidSetting(
                    f"--import_ops names the library {name}, and there is no such file. Give the "
                    f"path of a library that registers ops, or the name of a Python package."
                )
        elif not all(map(str.isidentifier, name.split("."))) or not is_installed(name):
            raise InvalidSetting(
                f"--import_ops names {name}, and no such Python package is installed. Install it, "
                f"or give the path of a library, such as /ops/libmine.so."
            )


def import_ops(names: str | Iterable[str]) -> None:
    """Import the packages and libraries that the user has named; models may have their ops.

    Args:
      names: Python packages, and paths of libraries for `tf.load_op_library`; or a text that
        commas divide.

    Raises:
      InvalidSetting: one of them is missing, cannot be loaded, or registers no ops.
    """
    names = parse_names(names)
    check_names(names)
    for name in names:
        with _lock:
            if name in _named:
                continue
            before = _registered_ops()
            try:
                _register(name)
            except Exception as error:  # A package may raise any error.
                raise InvalidSetting(_failure(f"--import_ops names {name}", error)) from error
            after = _registered_ops()
            ops = frozenset(op for op in after if op not in before or find_package(op) == name)
            if not ops:
                raise InvalidSetting(
                    f"--import_ops names {name}, which registers no ops, or was imported before. "
                    f"Leave it out, or name the package or the library that registers them."
                )
            _named[name] = ops
        logger.info("imported %s; number of its ops: %d", name, len(ops))


def import_packages_of(meta_graphs: Iterable[Any], where: object) -> None:
    """Import the installed known packages whose ops are in MetaGraphDefs.

    Args:
      where: the model, for the log and the texts of errors.

    Raises:
      UnsupportedModel: a package is not installed, or cannot be imported.
    """
    with_packages(lambda ops: check_imported(meta_graphs, ops, where), where)


def with_packages(read: Callable[[ImportedOps], Result], where: object) -> Result:
    """Call a function that reads a model; import what it misses and is installed; call it again.

    Args:
      read: takes the imported ops, and raises OpsNotImported if the model has ops of other
        packages.
    """
    try:
        return read(imported())
    except OpsNotImported as error:
        for package, op in error.packages.items():
            if is_installed(package):
                _import_package(package, op, where)
        return read(imported())


def imported() -> ImportedOps:
    """Return the ops that this process has in addition to TensorFlow's."""
    with _lock:
        return ImportedOps(frozenset(_packages), frozenset().union(*_named.values()))


def _import_package(package: str, op: str, where: object) -> None:
    with _lock:
        if package in _packages:
            return
        try:
            _register(package)
        except Exception as error:  # A package may raise any error.
            raise UnsupportedModel(
                _failure(f"cannot load {where}: its op {op} is of {package}", error)
            ) from error
    logger.info("%s: imported %s, which registers its op %s", where, package, op)


def _register(name: str) -> None:
    """Load the library or the package of a name."""
    import tensorflow as tf

    libraries = _libraries(name)
    for library in libraries:
        tf.load_library(str(library))
    if not libraries:
        importlib.import_module(name)
    if name in KNOWN_PACKAGES:
        _packages.add(name)


def _libraries(name: str) -> list[Path]:
    """Return the libraries that register the ops of a name; empty if Python code does it."""
    if is_library(name):
        return [Path(name).absolute()]
    spec = importlib.util.find_spec(name) if name in _LIBRARIES else None
    locations = (spec.submodule_search_locations if spec is not None else None) or ()
    return [path for place in locations for path in sorted(Path(place).glob(_LIBRARIES[name]))]


def _registered_ops() -> frozenset[str]:
    from tensorflow.core.framework import op_def_pb2

    c_api = tensorflow_internals.c_api
    ops = op_def_pb2.OpList.FromString(c_api.TF_GetBuffer(c_api.TF_GetAllOpList()))
    return frozenset(op.name for op in ops.op)


def _failure(subject: str, error: Exception) -> str:
    import tensorflow as tf

    reason = " ".join(str(error).split()) or type(error).__name__
    return (
        f"{subject}, which TensorFlow {tf.__version__} cannot load: {reason}. Install or build it "
        f"for this TensorFlow."
    )
