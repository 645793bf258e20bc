"""Models built without eager execution can be converted, and stay unchanged."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.python.eager import context

from tests.trainer.keras import models
from tpuserve.errors import InvalidSetting
from trainer import to_keras
from trainer.keras import serving_input_receiver_fn
from trainer.keras.model.unsupported_options import UNSUPPORTED_OPTIONS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.numeric,
    # Ignore the warnings of tf_keras about its base classes for TensorFlow 1.
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

v1 = tf.compat.v1
layers = tf_keras.layers
legacy = tf_keras.optimizers.legacy


@pytest.fixture(autouse=True)
def _without_eager_execution() -> Iterator[None]:
    with tf.Graph().as_default():
        yield


class _Scale(tf_keras.layers.Layer):
    """A custom layer with a regularizer."""

    def __init__(self, by: float, **named: Any) -> None:
        super().__init__(**named)
        self.by = by

    def build(self, shape: Any) -> None:
        regularizer = tf_keras.regularizers.l2(0.1)
        self.w = self.add_weight("w", [1], initializer="ones", regularizer=regularizer)

    def call(self, x: Any) -> Any:
        return x * self.w * self.by

    def get_config(self) -> Any:
        return {**super().get_config(), "by": self.by}


class _Own(tf_keras.Model):
    """A subclassed model with two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.last = layers.Dense(4, activation="tanh"), layers.Dense(3)

    def call(self, x: Any) -> Any:
        return self.last(self.hidden(x))


def _two_outputs() -> Any:
    a, b = layers.Input((4,), name="a"), layers.Input((2,), name="b")
    hidden = tf.tanh(layers.Concatenate()([layers.Dense(3)(a), b])) * 1.5
    hidden = _Scale(0.5)(hidden)
    outputs = [
        layers.Dense(3, activation="softmax", name="kind")(hidden),
        layers.Dense(1, name="size")(hidden),
    ]
    model = tf_keras.Model([a, b], outputs)
    schedule = tf_keras.optimizers.schedules.ExponentialDecay(0.05, 2, 0.5)
    model.compile(
        legacy.Adam(schedule, epsilon=1e-3),
        loss={"kind": "sparse_categorical_crossentropy", "size": "mse"},
        loss_weights={"size": 0.25},
        metrics={"kind": ["accuracy", tf_keras.metrics.SparseCategoricalAccuracy()]},
        weighted_metrics={"size": ["mae"]},
    )
    return model


def _dense(optimizer: Any = "sgd", *more: Any, **compiled: Any) -> Any:
    own = [layers.Dense(5, activation="tanh", input_shape=(4,)), *more, layers.Dense(3)]
    return models.compiled_model(tf_keras, tf_keras.Sequential(own), optimizer, **compiled)


def _steps(model: Any, dataset: Any = models.batches) -> list[float]:
    """Train one epoch in the model's own session and return the loss of each step."""
    element = v1.data.make_one_shot_iterator(dataset()).get_next()
    losses = []
    with v1.Session() as session:
        rows = [session.run(element) for _ in range(6)]
    for batch in rows:
        losses.append(float(np.ravel(model.train_on_batch(*batch))[0]))
    return losses


def _train(
    model: Any, model_dir: Path, cores: int, dataset: Any = models.batches, **options: Any
) -> Any:
    """Return an estimator that has trained one epoch."""
    estimator = models.estimator(model, model_dir, use_tpu=cores > 0, **options)
    with models.emulated_tpu(cores):
        estimator.train(models.input_fn(dataset), steps=6)
    return estimator


def _assert_trains_like_the_session(
    model: Any, model_dir: Path, cores: int, dataset: Any = models.batches
) -> None:
    """Assert that an estimator trains like its model, and that to_keras copies the result."""
    start = model.get_weights()
    estimator = _train(model, model_dir, cores, dataset)
    np.testing.assert_equal(model.get_weights(), start)
    expected = _steps(model, dataset)
    fitted = model.get_weights()
    with context.eager_mode():
        losses = models.read_losses(model_dir)
    assert losses == pytest.approx(expected, rel=1e-5)
    model.set_weights(start)
    assert to_keras(estimator) is model
    for actual, desired in zip(model.get_weights(), fitted, strict=True):
        np.testing.assert_allclose(actual, desired, rtol=1e-4, atol=1e-6)


@pytest.mark.on_pjrt_too
def test_two_outputs_have_their_losses_and_metrics(tmp_path: Path) -> None:
    def dataset(rows: int = 8) -> Any:
        x = {"a": models.X, "b": models.X[:, :2]}
        weights = np.linspace(0.0, 2.0, len(models.X)).astype("float32")
        labels = {"kind": models.Y[:, None], "size": models.X[:, :1]}
        return models.batches(x, labels, {"kind": weights, "size": 1 + weights}, rows)

    model = _two_outputs()
    _assert_trains_like_the_session(model, tmp_path / "run", 2, dataset)
    estimator = models.estimator(model, tmp_path / "other")
    results = estimator.evaluate(models.input_fn(dataset))
    x, y, weights = _whole(dataset)
    metrics = model.evaluate(x, y, sample_weight=weights, batch_size=8, verbose=0)
    expected = dict(zip(model.metrics_names, map(float, metrics), strict=True))
    assert {name: results[name] for name in expected} == pytest.approx(expected, rel=1e-4)
    assert "kind_accuracy" in expected
    # The original model defines its inputs too.
    assert set(serving_input_receiver_fn(model)().features) == {"a", "b"}


def _whole(dataset: Any) -> Any:
    element = v1.data.make_one_shot_iterator(dataset(rows=48)).get_next()
    with v1.Session() as session:
        return session.run(element)


def test_frozen_layers_and_moving_averages_are_those_of_fit(tmp_path: Path) -> None:
    model = tf_keras.Sequential(
        [
            layers.Dense(5, input_shape=(4,), trainable=False),
            layers.BatchNormalization(momentum=0.5),
            layers.Lambda(lambda x: tf_keras.backend.tanh(x) + 0.1),
            layers.Dense(3),
        ]
    )
    clipped = legacy.SGD(0.1, momentum=0.5, nesterov=True, clipnorm=0.05)
    _assert_trains_like_the_session(models.compiled_model(tf_keras, model, clipped), tmp_path, 0)


def test_a_loss_that_is_added_to_the_model_counts(tmp_path: Path) -> None:
    x = layers.Input((4,))
    inner = tf_keras.Model(x, layers.Dense(3, kernel_regularizer="l2")(x))
    y = layers.Dense(3, activity_regularizer="l2")(inner(x))
    model = tf_keras.Model(x, y)
    model.add_loss(0.1 * tf.reduce_mean(y**2))
    _assert_trains_like_the_session(models.compiled_model(tf_keras, model, "rmsprop"), tmp_path, 2)


@pytest.mark.parametrize("build_model", [_Own, lambda: tf_keras.Sequential([layers.Dense(3)])])
def test_a_model_built_by_its_first_batch_is_cloned(build_model: Any, tmp_path: Path) -> None:
    model = models.compiled_model(tf_keras, build_model(), v1.train.MomentumOptimizer(0.1, 0.9))
    model.train_on_batch(models.X[:8], models.Y[:8])
    _assert_trains_like_the_session(model, tmp_path, 0)


def test_to_keras_needs_a_model_with_weights(tmp_path: Path) -> None:
    model = models.compiled_model(tf_keras, tf_keras.Sequential([layers.Dense(3)]))
    estimator = _train(model, tmp_path, 0)
    with pytest.raises(InvalidSetting, match="has no weights in its session yet"):
        to_keras(estimator)


def test_a_loaded_model_is_built_for_the_graph_of_the_program(tmp_path: Path) -> None:
    model = _dense(legacy.Adam(0.05, epsilon=1e-3))
    model.train_on_batch(models.X[:8], models.Y[:8])
    model.save(tmp_path / "kept.h5")
    options = {"keras_model_path": str(tmp_path / "kept.h5")}
    estimator = _train(None, tmp_path / "run", 0, **options)
    expected = _steps(model)
    with context.eager_mode():
        losses = models.read_losses(tmp_path / "run")
    assert losses == pytest.approx(expected, rel=1e-5)
    predicted = to_keras(estimator).predict(models.X[:8])
    np.testing.assert_allclose(predicted, model.predict(models.X[:8]), rtol=1e-4, atol=1e-6)


def test_a_graph_model_and_an_eager_model_work_side_by_side(tmp_path: Path) -> None:
    model = _dense()
    before = model.predict(models.X[:8])
    with context.eager_mode():
        estimator = models.dense(tf_keras)
        eager = estimator.predict(models.X[:8], verbose=0)
        estimator = models.estimator(estimator, tmp_path / "eager")
    models.estimator(model, tmp_path / "graph")
    np.testing.assert_equal(_dense().predict(models.X[:8]).shape, (8, 3))
    np.testing.assert_equal(model.predict(models.X[:8]), before)
    with context.eager_mode():
        (prediction, *_) = estimator.predict(models.input_fn(models.batches))
    (row,) = prediction.values()
    np.testing.assert_allclose(row, eager[0], rtol=1e-5)


def _function_layer_model() -> Any:
    class Own(tf_keras.layers.Layer):
        def __init__(self, function: Any) -> None:
            super().__init__(name="own")

        def call(self, x: Any) -> Any:
            return x

    return _dense("sgd", Own(tf.nn.relu))


def _with_added_loss() -> Any:
    model = _dense()
    kernel = model.layers[0].kernel
    model.layers[0].add_loss(lambda: tf.reduce_sum(kernel))
    return model


def _rate() -> Any:
    return tf.constant(0.1) * 2


_CASES: dict[str, tuple[str, Any]] = {
    "not compiled": ("", lambda: tf_keras.Sequential([layers.Dense(1, input_shape=(4,))])),
    "no get_config": ("Own", _function_layer_model),
    "add_loss of a function": ("dense", _with_added_loss),
    "tensor as hyperparameter": ("learning_rate of SGD", lambda: _dense(legacy.SGD(_rate()))),
    "another optimizer": ("SGD", lambda: _dense(tf_keras.optimizers.SGD())),
}


@pytest.mark.parametrize("option", _CASES)
def test_a_model_that_cannot_be_cloned_is_refused(option: str, tmp_path: Path) -> None:
    owner, build_model = _CASES[option]
    with pytest.raises(InvalidSetting) as caught:
        models.estimator(build_model(), tmp_path)
    assert f"because of {option}: {UNSUPPORTED_OPTIONS[option].reason}" in str(caught.value)
    assert owner in str(caught.value)
