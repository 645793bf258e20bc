"""A model that cannot be converted raises an error that names the option and its layer."""

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf
import tf_keras

from tests.preloaded.process import run_preloaded
from tests.trainer.keras import models
from tpuserve.errors import InvalidSetting
from trainer import CrossShardOptimizer
from trainer.compat.contrib.opt.moving_average import MovingAverageOptimizer
from trainer.keras.model.unsupported_options import UNSUPPORTED_OPTIONS

_both_kerases = pytest.mark.parametrize(
    "package", models.PACKAGES, ids=lambda package: package.__name__
)


def _layers_model(package: Any, *layers: Any, **compiled: Any) -> Any:
    model = package.Sequential([package.layers.Input((4,)), *layers, package.layers.Dense(3)])
    return models.compiled_model(package, model, **compiled)


def _stateful_model(package: Any) -> Any:
    x = package.layers.Input(batch_shape=(8, 4, 1))
    outputs = package.layers.LSTM(3, stateful=True, name="memory")(x)
    return models.compiled_model(package, package.Model(x, outputs))


def _overriding(name: str) -> Callable[[Any], Any]:
    def build_model(package: Any) -> Any:
        own = type("Own", (package.Sequential,), {name: lambda self, *arguments: None})
        return models.compiled_model(
            package, own([package.layers.Input((4,)), package.layers.Dense(3)])
        )

    return build_model


def _with_metric(package: Any) -> Any:
    class CountingLayer(package.layers.Layer):
        def __init__(self) -> None:
            super().__init__(name="counted")
            self.mean = package.metrics.Mean()

        def call(self, x: Any) -> Any:
            return x

    return _layers_model(package, CountingLayer())


def _loss_scaling_model(package: Any) -> Any:
    home = package.optimizers if package is keras else package.mixed_precision
    return _layers_model(package, optimizer=home.LossScaleOptimizer(package.optimizers.SGD()))


def _looking_up(package: Any) -> Any:
    x = package.layers.Input((1,), dtype="string")
    table = package.layers.StringLookup(vocabulary=["a"], name="words", output_mode="one_hot")
    return models.compiled_model(package, package.Model(x, package.layers.Dense(3)(table(x))))


def _in_strategy(package: Any) -> Any:
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        return _layers_model(package)


_CASES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "not compiled": (
        "",
        lambda package: package.Sequential([package.layers.Input((4,)), package.layers.Dense(3)]),
    ),
    "run_eagerly": ("", lambda package: _layers_model(package, run_eagerly=True)),
    "train_step": ("Own", _overriding("train_step")),
    "test_step": ("Own", _overriding("test_step")),
    "predict_step": ("Own", _overriding("predict_step")),
    "compute_metrics": ("Own", _overriding("compute_metrics")),
    "add_metric": ("counted", _with_metric),
    "LossScaleOptimizer": ("", _loss_scaling_model),
    "mixed_float16": (
        "half",
        lambda package: _layers_model(
            package, package.layers.Dense(3, dtype="mixed_float16", name="half")
        ),
    ),
    "stateful": ("memory", _stateful_model),
    "lookup table": ("words", _looking_up),
    "distribute strategy": ("OneDeviceStrategy", _in_strategy),
    "reduction='none'": (
        "MeanSquaredError",
        lambda package: _layers_model(
            package, loss=package.losses.MeanSquaredError(reduction="none")
        ),
    ),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@_both_kerases
@pytest.mark.parametrize("option", _CASES)
def test_an_option_is_refused_by_name(option: str, package: Any, tmp_path: Path) -> None:
    owner, build_model = _CASES[option]
    with pytest.raises(InvalidSetting) as caught:
        models.estimator(build_model(package), tmp_path, use_tpu=True)
    assert f"because of {option}: {UNSUPPORTED_OPTIONS[option].reason}" in str(caught.value)
    assert owner in str(caught.value)


@_both_kerases
def test_a_variable_that_the_model_does_not_track_is_refused(package: Any, tmp_path: Path) -> None:
    outside = tf.Variable(2.0, name="outside")

    class Times(package.layers.Layer):
        def call(self, x: Any) -> Any:
            return x * outside

    estimator = models.estimator(_layers_model(package, Times()), tmp_path)
    with pytest.raises(InvalidSetting, match=r"\(outside:0\).*untracked variable"):
        estimator.train(models.input_fn(models.batches), steps=1)


def test_a_layer_that_is_dynamic_is_refused(tmp_path: Path) -> None:
    class Own(tf_keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__(dynamic=True, name="own")

        def compute_output_shape(self, shape: Any) -> Any:
            return shape

        def call(self, x: Any) -> Any:
            return x

    with pytest.raises(InvalidSetting, match=r"\(own\).*because of dynamic"):
        models.estimator(_layers_model(tf_keras, Own()), tmp_path)


def test_missing_feature_is_named(tmp_path: Path) -> None:
    a, b = keras.layers.Input((4,), name="a"), keras.layers.Input((4,), name="b")
    model = models.compiled_model(keras, keras.Model([a, b], keras.layers.Add()([a, b])))
    estimator = models.estimator(model, tmp_path)
    with pytest.raises(InvalidSetting, match="has the inputs a, b, and the features are a: b is"):
        estimator.evaluate(models.input_fn(lambda rows: models.batches({"a": models.X}, rows=rows)))


def test_an_optimizer_that_wraps_another_is_refused(tmp_path: Path) -> None:
    descent = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    for outer in (
        MovingAverageOptimizer(descent),
        CrossShardOptimizer(descent, tf.compat.v1.losses.Reduction.SUM),
    ):
        with pytest.raises(InvalidSetting, match="because of optimizer in an optimizer: the outer"):
            models.estimator(models.dense(tf_keras, outer), tmp_path)


def test_a_list_of_optimizers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="because of several optimizers: an estimator has"):
        models.estimator(models.dense(tf_keras, ["sgd", "adam"]), tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("jax") is None,
    reason="some versions of Keras cannot import another backend without JAX",
)
def test_another_backend_is_refused() -> None:
    program = """if True:
        import keras, trainer
        model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        try:
            trainer.model_to_tpu_estimator(model)
        except ValueError as error:
            print(error)
    """
    process = run_preloaded(["-c", program], env={**os.environ, "KERAS_BACKEND": "numpy"})
    assert process.returncode == 0, process.stderr
    assert "(numpy) cannot become a TPUEstimator because of KERAS_BACKEND" in process.stdout


def test_a_model_that_is_compiled_again_is_refused(tmp_path: Path) -> None:
    model = models.dense(keras)
    estimator = models.estimator(model, tmp_path)
    models.compiled_model(keras, model, "adam")
    with pytest.raises(InvalidSetting, match="was compiled again"):
        estimator.train(models.input_fn(models.batches), steps=1)


def test_an_optimizer_without_a_tpu_op_is_refused_on_a_tpu_only(tmp_path: Path) -> None:
    adam = tf_keras.optimizers.legacy.Adam(amsgrad=True)
    with pytest.raises(InvalidSetting, match="because of amsgrad of a legacy optimizer"):
        models.estimator(models.dense(tf_keras, adam), tmp_path, use_tpu=True)
    models.estimator(models.dense(tf_keras, adam), tmp_path)
