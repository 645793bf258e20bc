"""Small canned estimators of each kind, and the rows that they are trained on."""

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import trainer
from trainer.compat.contrib import estimator as contrib_estimator
from trainer.compat.imports import estimator_finder, install_names
from trainer.compat.source import estimator_names

columns = tf.feature_column
NUMBER = columns.numeric_column("number")
WORD = columns.categorical_column_with_vocabulary_list("word", ["a", "b"])
LINEAR = [NUMBER, WORD]
DEEP = [NUMBER, columns.embedding_column(WORD, 2)]
SPEC = columns.make_parse_example_spec(LINEAR)

# The label is 1 where the number is positive.
NUMBERS = np.linspace(-2, 2, 16, dtype=np.float32)
WORDS = np.array(["a", "b"] * 8)
LABELS = (NUMBERS > 0).astype(np.int32)


def input_fn() -> Any:
    rows = ({"number": NUMBERS[:, None], "word": WORDS[:, None]}, LABELS[:, None])
    return tf.data.Dataset.from_tensors(rows).repeat(200)


def arguments(name: str, optimizer: Any) -> dict[str, Any]:
    """Return the arguments that a class of this name needs."""
    options: dict[str, Any]
    if name.startswith("DNNLinear"):
        options = {"linear_feature_columns": LINEAR, "dnn_feature_columns": DEEP}
        options |= {"dnn_hidden_units": [4], "dnn_optimizer": optimizer}
    elif name.startswith("DNN"):
        options = {"feature_columns": DEEP, "hidden_units": [4], "optimizer": optimizer}
    elif name.startswith("Linear"):
        options = {"feature_columns": LINEAR}
    else:
        options = {}
    if name.endswith("Estimator"):
        options["head"] = trainer.BinaryClassHead()
    return options


def build(module: Any, name: str, directory: Path, **options: Any) -> Any:
    """Build an estimator of a class of `trainer` or tf.compat.v1.estimator."""
    config = trainer.RunConfig(tf_random_seed=1, model_dir=str(directory))
    legacy = tf.keras.optimizers.legacy
    adam = legacy.Adam(0.1) if module is trainer else tf.compat.v1.train.AdamOptimizer(0.1)
    return getattr(module, name)(**{**arguments(name, adam), "config": config, **options})


def v1_module() -> Any:
    """Return a module with the canned estimators of TensorFlow 1."""
    estimator_finder.install()
    return install_names.register_lazy_modules(
        "tests.v1_estimator", "tf.estimator", estimator_names.V1, {}
    )


def v1_head() -> Any:
    """Return a head for the optimizers of TensorFlow 1."""
    return contrib_estimator.binary_classification_head()
