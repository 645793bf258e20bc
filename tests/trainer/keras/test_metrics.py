"""A converted model's evaluate() gives the numbers of model.evaluate for every metric of Keras."""

import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from keras.src import metrics as keras_metrics
from tf_keras.src import metrics as tf_keras_metrics

from tests.trainer.keras import models

pytestmark = [
    pytest.mark.slow,
    pytest.mark.numeric,
    # Keras warns that probabilities are no logits, and calls deprecated functions of NumPy.
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning"),
]


def _names(metrics: dict[str, Any]) -> list[str]:
    """Return one name for each metric, which is the name of its class or function if it has one.

    Keras itself finds the metric of a name, so two names of a metric make the same model.
    """
    names: dict[int, str] = {}
    for name, metric in metrics.items():
        if callable(metric) and (id(metric) not in names or name == metric.__name__):
            names[id(metric)] = name
    return sorted(names.values())


_NAMES = {
    keras: _names(keras_metrics.ALL_OBJECTS_DICT),
    tf_keras: _names(vars(tf_keras_metrics)),
}
_CHOSEN_BY_COMPILE = ["accuracy", "acc", "crossentropy", "ce"]
"""Names for which compile() chooses a metric that fits the labels and outputs."""

_both_kerases = pytest.mark.parametrize(
    "package", models.PACKAGES, ids=lambda package: package.__name__
)


_LABELS = {
    "one-hot": np.eye(3, dtype="float32")[models.Y],
    "class": models.Y[:, None],
    "binary": (models.Y[:, None] > 0).astype("float32"),
}


def _build_model(package: Any, kind: str, activation: Any = None, metrics: Any = ()) -> Any:
    default, units = ("sigmoid", 1) if kind == "binary" else ("softmax", 3)
    last = package.layers.Dense(units, activation=activation or default)
    model = models.with_weights(package.Sequential([package.layers.Input((4,)), last]))
    model.compile("sgd", "mse", metrics=list(metrics))
    return model


def _accepted_metrics(package: Any, kind: str) -> list[str]:
    """Return the names of metrics with which Keras can evaluate the model on the labels."""
    accepted = []
    model = _build_model(package, kind)
    for name in dict.fromkeys([*_NAMES[package], *_CHOSEN_BY_COMPILE]):
        if kind != "one-hot" and not re.search("accuracy|acc$|crossentropy|ce$", name, re.I):
            continue  # The other metrics do not depend on the kind of labels.
        try:
            model.compile("sgd", "mse", metrics=[name], run_eagerly=True)
            model.test_on_batch(models.X[:8], _LABELS[kind][:8])
        except Exception:
            continue  # Keras raises errors of any type.
        accepted.append(name)
    return accepted


def _assert_evaluates_like_keras(build_model: Any, kind: str, cores: int, model_dir: Path) -> None:
    def dataset(rows: int = 8) -> Any:
        return models.batches(models.X, _LABELS[kind], rows=rows)

    expected = build_model().evaluate(dataset(), verbose=0, return_dict=True)
    estimator = models.estimator(build_model(), model_dir, use_tpu=cores > 0)
    with models.emulated_tpu(cores):
        results = estimator.evaluate(models.input_fn(dataset))
    for name, value in expected.items():
        np.testing.assert_allclose(results[name], value, rtol=1e-5, err_msg=name)


@_both_kerases
@pytest.mark.parametrize("kind", _LABELS)
def test_each_metric_that_has_a_name_has_the_value_of_evaluate(
    package: Any, kind: str, tmp_path: Path
) -> None:
    names = _accepted_metrics(package, kind)
    classes = [name for name in names if name[0].isupper() and not name.isupper()]
    assert len(classes) >= 3
    # A model must not have two metrics with the same name, as a class and its function have.
    for group in (classes, [name for name in names if name not in classes]):

        def build_model(group: list[str] = group) -> Any:
            return _build_model(package, kind, metrics=group)

        _assert_evaluates_like_keras(build_model, kind, 0, tmp_path)


@_both_kerases
@pytest.mark.parametrize("activation", ["softmax", tf.nn.softmax], ids=["Keras", "TensorFlow"])
# With 100 times the weights, float32 rounds probabilities to 0, of which Keras clips the logarithm.
@pytest.mark.parametrize(
    ("metric", "scale"), [("binary_crossentropy", 1), ("categorical_crossentropy", 100)]
)
def test_crossentropies_read_the_logits_as_in_evaluate_on_two_cores(
    package: Any, activation: Any, metric: str, scale: int, tmp_path: Path
) -> None:
    def build_model() -> Any:
        model = _build_model(package, "one-hot", activation, metrics=[metric])
        model.set_weights([scale * weight for weight in model.get_weights()])
        return model

    _assert_evaluates_like_keras(build_model, "one-hot", 2, tmp_path)
