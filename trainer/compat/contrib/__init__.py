"""tf.contrib: the modules of TensorFlow 1 that programs for TPUEstimator import.

Each module is imported on first use. A name that this package does not supply raises an
AttributeError that says what to use instead. The texts of these errors are in
`trainer.compat.contrib_replacements`.
"""

import importlib
from typing import Any

from trainer.compat import contrib_missing_names

__all__ = [
    "cluster_resolver",
    "compiler",
    "crf",
    "cudnn_rnn",
    "data",
    "distribute",
    "eager",
    "estimator",
    "factorization",
    "framework",
    "image",
    "layers",
    "learn",
    "lookup",
    "losses",
    "metrics",
    "opt",
    "predictor",
    "rnn",
    "seq2seq",
    "slim",
    "stateless",
    "summary",
    "tfprof",
    "tpu",
    "training",
    "util",
]

_find_other = contrib_missing_names.getattr_for("tf.contrib", __all__)


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    return _find_other(name)


def __dir__() -> list[str]:
    return __all__
