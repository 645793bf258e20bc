"""tf.contrib.slim.nets: networks for images, by the package tf_slim, of tf.contrib's layers.

The modules of tf_slim.nets are run here once more, with tf.contrib's layers and arg_scope in place
of tf_slim's: programs set the layers' defaults by tf.contrib's arg_scope.
"""

# ruff: noqa: F822
import builtins
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from trainer.compat import contrib_missing_names
from trainer.compat.contrib import framework, layers
from trainer.compat.contrib.layers import initializers, regularizers
from trainer.compat.contrib.slim import named_outputs

# In the order of their imports of each other.
__all__ = [
    "alexnet",
    "inception_v1",
    "inception_v2",
    "inception_v3",
    "inception",
    "overfeat",
    "resnet_utils",
    "resnet_v1",
    "resnet_v2",
    "vgg",
]

_TF_SLIM = "tf_slim"
# What the modules import of tf_slim.
_supplied = SimpleNamespace(
    add_arg_scope=framework.add_arg_scope,
    arg_scope=framework.arg_scope,
    initializers=initializers,
    layers=layers,
    regularizers=regularizers,
    utils=named_outputs,
)


def _import(name: str, *arguments: Any) -> Any:
    root, _, path = name.partition(".")
    if root != _TF_SLIM:
        return builtins.__import__(name, *arguments)
    if path.startswith("nets"):
        return importlib.import_module(f"{__name__}{path.removeprefix('nets')}")
    return _supplied


def _run_modules() -> None:
    spec = importlib.util.find_spec(_TF_SLIM)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(
            "tf.contrib.slim.nets runs the networks of a package: pip install tf-slim.",
            name=_TF_SLIM,
        )
    for name in __all__:
        file = Path(next(iter(spec.submodule_search_locations)), "nets", f"{name}.py")
        module = ModuleType(f"{__name__}.{name}")
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _import}
        sys.modules[module.__name__] = globals()[name] = module
        exec(compile(file.read_bytes(), str(file), "exec", dont_inherit=True), module.__dict__)


_run_modules()
__getattr__ = contrib_missing_names.getattr_for("tf.contrib.slim.nets", __all__)
