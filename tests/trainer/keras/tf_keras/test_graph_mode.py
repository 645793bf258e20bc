"""Models that were made without eager execution become estimators, and stay what they were."""

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
    # About the engine of TensorFlow 1.
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
    """A layer of a program's own, with a regularizer."""

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
    """A subclassed model."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.last = layers.Dense(4, activation="relu"), layers.Dense(3)

    def call(self, x: Any) -> Any:
        return self.last(self.hidden(x))


def _two_outputs() -> Any:
    a, b = layers.Input((4,), name="a"), layers.Input((2,), name="b")
    hidden = tf.nn.relu(layers.Concatenate()([layers.Dense(3)(a), b])) * 1.5
    hidden = _Scale(0.5)(hidden)
    outputs = [
        layers.Dense(3, activation="softmax", name="kind")(hidden),
        layers.Dense(1, name="size")(hidden),
    ]
    model = tf_keras.Model([a, b], outputs)
    schedule = tf_keras.optimizers.schedules.ExponentialDecay(0.05, 2, 0.5)
    model.compile(
        legacy.Adam(schedule),
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
    """The loss of each step of one epoch, made in the model's own session."""
    element = v1.data.make_one_shot_iterator(dataset()).get_next()
    found = []
    with v1.Session() as session:
        rows = [session.run(element) for _ in range(6)]
    for each in rows:
        found.append(float(np.ravel(model.train_on_batch(*each))[0]))
    return found


def _train(model: Any, place: Path, cores: int, dataset: Any = models.batches, **more: Any) -> Any:
    """An estimator that has trained one epoch."""
    made = models.estimator(model, place, use_tpu=cores > 0, **more)
    with models.emulated(cores):
        made.train(models.of(dataset), steps=6)
    return made


def _check(model: Any, place: Path, cores: int, dataset: Any = models.batches) -> None:
    """The estimator makes the steps that the model makes afterwards, which has its result."""
    start = model.get_weights()
    made = _train(model, place, cores, dataset)
    np.testing.assert_equal(model.get_weights(), start)
    expected = _steps(model, dataset)
    fitted = model.get_weights()
    with context.eager_mode():
        found = models.losses(place)
    assert found == pytest.approx(expected, rel=1e-5)
    model.set_weights(start)
    assert to_keras(made) is model
    for one, two in zip(model.get_weights(), fitted, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)


def test_two_outputs_have_their_losses_and_metrics(tmp_path: Path) -> None:
    def dataset(rows: int = 8) -> Any:
        x = {"a": models.X, "b": models.X[:, :2]}
        weights = np.linspace(0.0, 2.0, len(models.X)).astype("float32")
        labels = {"kind": models.Y[:, None], "size": models.X[:, :1]}
        return models.batches(x, labels, {"kind": weights, "size": 1 + weights}, rows)

    model = _two_outputs()
    _check(model, tmp_path / "run", 2, dataset)
    made = models.estimator(model, tmp_path / "other")
    found = made.evaluate(models.of(dataset))
    x, y, weights = _whole(dataset)
    metrics = model.evaluate(x, y, sample_weight=weights, batch_size=8, verbose=0)
    expected = dict(zip(model.metrics_names, map(float, metrics), strict=True))
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-4)
    assert "kind_accuracy" in expected
    # The model itself says what its inputs are, too.
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
    _check(models.compiled_model(tf_keras, model, clipped), tmp_path, 0)


def test_a_loss_that_is_added_to_the_model_counts(tmp_path: Path) -> None:
    x = layers.Input((4,))
    inner = tf_keras.Model(x, layers.Dense(3, kernel_regularizer="l2")(x))
    y = layers.Dense(3, activity_regularizer="l2")(inner(x))
    model = tf_keras.Model(x, y)
    model.add_loss(0.1 * tf.reduce_mean(y**2))
    _check(models.compiled_model(tf_keras, model, "rmsprop"), tmp_path, 2)


@pytest.mark.parametrize("make", [_Own, lambda: tf_keras.Sequential([layers.Dense(3)])])
def test_a_model_that_a_batch_has_built_is_built_again(make: Any, tmp_path: Path) -> None:
    model = models.compiled_model(tf_keras, make(), v1.train.MomentumOptimizer(0.1, 0.9))
    model.train_on_batch(models.X[:8], models.Y[:8])
    _check(model, tmp_path, 0)


def test_a_model_without_weights_has_nothing_to_put_values_into(tmp_path: Path) -> None:
    model = models.compiled_model(tf_keras, tf_keras.Sequential([layers.Dense(3)]))
    made = _train(model, tmp_path, 0)
    with pytest.raises(InvalidSetting, match="has no weights in its session yet"):
        to_keras(made)


def test_a_file_becomes_a_model_of_the_programs_own_kind(tmp_path: Path) -> None:
    model = _dense(legacy.Adam(0.05))
    model.train_on_batch(models.X[:8], models.Y[:8])
    model.save(tmp_path / "kept.h5")
    options = {"keras_model_path": str(tmp_path / "kept.h5")}
    made = _train(None, tmp_path / "run", 0, **options)
    expected = _steps(model)
    with context.eager_mode():
        found = models.losses(tmp_path / "run")
    assert found == pytest.approx(expected, rel=1e-5)
    predicted = to_keras(made).predict(models.X[:8])
    np.testing.assert_allclose(predicted, model.predict(models.X[:8]), rtol=1e-4, atol=1e-6)


def test_a_model_goes_on_beside_one_made_for_eager_execution(tmp_path: Path) -> None:
    model = _dense()
    before = model.predict(models.X[:8])
    with context.eager_mode():
        made = models.dense(tf_keras)
        eager = made.predict(models.X[:8], verbose=0)
        estimator = models.estimator(made, tmp_path / "eager")
    models.estimator(model, tmp_path / "graph")
    np.testing.assert_equal(_dense().predict(models.X[:8]).shape, (8, 3))
    np.testing.assert_equal(model.predict(models.X[:8]), before)
    with context.eager_mode():
        (found, *_) = estimator.predict(models.of(models.batches))
    (row,) = found.values()
    np.testing.assert_allclose(row, eager[0], rtol=1e-5)


def _of_function() -> Any:
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
    "no get_config": ("Own", _of_function),
    "add_loss of a function": ("dense", _with_added_loss),
    "tensor as hyperparameter": ("learning_rate of SGD", lambda: _dense(legacy.SGD(_rate()))),
    "another optimizer": ("SGD", lambda: _dense(tf_keras.optimizers.SGD())),
}


@pytest.mark.parametrize("option", _CASES)
def test_what_cannot_be_made_again_is_refused_by_name(option: str, tmp_path: Path) -> None:
    place, make = _CASES[option]
    with pytest.raises(InvalidSetting) as caught:
        models.estimator(make(), tmp_path)
    assert f"because of {option}: {UNSUPPORTED_OPTIONS[option].reason}" in str(caught.value)
    assert place in str(caught.value)
