"""The TPUEstimator API on today's TensorFlow.

TensorFlow is imported when the first name is used, so that `import trainer` costs nothing to
those who only look, and so that legacy Keras, which tf.compat.v1.layers needs, is chosen first.
"""

import ast
import importlib
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")


def _homes() -> dict[str, str]:
    """Name → module, read from what type checkers read, so that both say the same."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [each for each in stub.body if isinstance(each, ast.ImportFrom)]
    return {name.name: str(each.module) for each in imports for name in each.names}


_HOMES = _homes()

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'trainer' has no attribute {name!r}")
    if _HOMES[name] == __name__:
        return importlib.import_module(f"{__name__}.{name}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
