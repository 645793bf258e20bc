"""The modules of the package tensorflow-estimator that tf.contrib's names are made of.

Their private names are used too: only one version of the package is ever loaded.
"""

import importlib
from typing import Any

from trainer.compat.imports import estimator_finder

estimator_finder.install()

_CANNED = "tensorflow_estimator.python.estimator.canned"

dnn: Any = importlib.import_module(f"{_CANNED}.dnn")
dnn_linear_combined: Any = importlib.import_module(f"{_CANNED}.dnn_linear_combined")
head: Any = importlib.import_module(f"{_CANNED}.head")
kmeans: Any = importlib.import_module(f"{_CANNED}.kmeans")
linear: Any = importlib.import_module(f"{_CANNED}.linear")
metric_keys: Any = importlib.import_module(f"{_CANNED}.metric_keys")
rnn: Any = importlib.import_module(f"{_CANNED}.rnn")
multi_label_head: Any = importlib.import_module(
    "tensorflow_estimator.python.estimator.head.multi_label_head"
)
