"""The TPUEstimator API on today's TensorFlow.

TensorFlow is imported only when a program first uses a name of this package, so that `import
trainer` takes almost no time. Before that import, TensorFlow is configured to use legacy Keras
(tf_keras), which tf.compat.v1.layers needs.
"""

import ast
import importlib
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")


def _read_stub() -> dict[str, str]:
    """Read the public names of this package from its stub file, `__init__.pyi`."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


_MODULES = _read_stub()

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    """Return the public object with this name; import the object's module first if necessary."""
    if name not in _MODULES:
        raise AttributeError(f"module 'trainer' has no attribute {name!r}")
    if _MODULES[name] == __name__:
        return importlib.import_module(f"{__name__}.{name}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """List the public names of this package, for `dir(trainer)`."""
    return __all__
