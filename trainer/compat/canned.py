"""The canned estimators and heads of tf.estimator, for programs that import them from `trainer`.

They are classes of the package tensorflow-estimator, which is imported on first use.
"""

import importlib
from typing import Any

from trainer.compat.imports import estimator_finder
from trainer.compat.source import estimator_names

__all__ = sorted(estimator_names.CANNED)


def __getattr__(name: str) -> Any:
    if name not in estimator_names.CANNED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    estimator_finder.install()
    module, _, attribute = estimator_names.CANNED[name].partition(":")
    return getattr(importlib.import_module(module), attribute)
