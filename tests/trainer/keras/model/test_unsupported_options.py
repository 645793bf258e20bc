"""What cannot be converted is an error that names the option, and the layer that has it."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf
import tf_keras

from tests.trainer.keras import models
from tpuserve.errors import InvalidSetting
from trainer import CrossShardOptimizer
from trainer.compat.contrib.opt.moving_average import MovingAverageOptimizer
from trainer.keras.model.unsupported_options import UNSUPPORTED_OPTIONS

pytestmark = pytest.mark.slow

_each_kind = pytest.mark.parametrize("kind", models.KINDS, ids=lambda kind: kind.__name__)


def _of_layers(kind: Any, *layers: Any, **compiled: Any) -> Any:
    model = kind.Sequential([kind.layers.Input((4,)), *layers, kind.layers.Dense(3)])
    return models.compiled_model(kind, model, **compiled)


def _stateful(kind: Any) -> Any:
    x = kind.layers.Input(batch_shape=(8, 4, 1))
    outputs = kind.layers.LSTM(3, stateful=True, name="memory")(x)
    return models.compiled_model(kind, kind.Model(x, outputs))


def _overriding(name: str) -> Callable[[Any], Any]:
    def make(kind: Any) -> Any:
        own = type("Own", (kind.Sequential,), {name: lambda self, *arguments: None})
        return models.compiled_model(kind, own([kind.layers.Input((4,)), kind.layers.Dense(3)]))

    return make


def _with_metric(kind: Any) -> Any:
    class Counted(kind.layers.Layer):
        def __init__(self) -> None:
            super().__init__(name="counted")
            self.mean = kind.metrics.Mean()

        def call(self, x: Any) -> Any:
            return x

    return _of_layers(kind, Counted())


def _scaled(kind: Any) -> Any:
    home = kind.optimizers if kind is keras else kind.mixed_precision
    return _of_layers(kind, optimizer=home.LossScaleOptimizer(kind.optimizers.SGD()))


def _looking_up(kind: Any) -> Any:
    x = kind.layers.Input((1,), dtype="string")
    table = kind.layers.StringLookup(vocabulary=["a"], name="words", output_mode="one_hot")
    return models.compiled_model(kind, kind.Model(x, kind.layers.Dense(3)(table(x))))


def _in_strategy(kind: Any) -> Any:
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        return _of_layers(kind)


_CASES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "not compiled": (
        "",
        lambda kind: kind.Sequential([kind.layers.Input((4,)), kind.layers.Dense(3)]),
    ),
    "run_eagerly": ("", lambda kind: _of_layers(kind, run_eagerly=True)),
    "train_step": ("Own", _overriding("train_step")),
    "test_step": ("Own", _overriding("test_step")),
    "predict_step": ("Own", _overriding("predict_step")),
    "compute_metrics": ("Own", _overriding("compute_metrics")),
    "add_metric": ("counted", _with_metric),
    "LossScaleOptimizer": ("", _scaled),
    "mixed_float16": (
        "half",
        lambda kind: _of_layers(kind, kind.layers.Dense(3, dtype="mixed_float16", name="half")),
    ),
    "stateful": ("memory", _stateful),
    "lookup table": ("words", _looking_up),
    "distribute strategy": ("OneDeviceStrategy", _in_strategy),
    "reduction='none'": (
        "MeanSquaredError",
        lambda kind: _of_layers(kind, loss=kind.losses.MeanSquaredError(reduction="none")),
    ),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@_each_kind
@pytest.mark.parametrize("option", _CASES)
def test_an_option_is_refused_by_name(option: str, kind: Any, tmp_path: Path) -> None:
    place, make = _CASES[option]
    with pytest.raises(InvalidSetting) as caught:
        models.estimator(make(kind), tmp_path)
    assert f"because of {option}: {UNSUPPORTED_OPTIONS[option].reason}" in str(caught.value)
    assert place in str(caught.value)


@_each_kind
def test_a_variable_that_the_model_does_not_track_is_refused(kind: Any, tmp_path: Path) -> None:
    outside = tf.Variable(2.0, name="outside")

    class Times(kind.layers.Layer):
        def call(self, x: Any) -> Any:
            return x * outside

    made = models.estimator(_of_layers(kind, Times()), tmp_path)
    with pytest.raises(InvalidSetting, match=r"\(outside:0\).*untracked variable"):
        made.train(models.of(models.batches), steps=1)


def test_a_layer_that_is_dynamic_is_refused(tmp_path: Path) -> None:
    class Own(tf_keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__(dynamic=True, name="own")

        def compute_output_shape(self, shape: Any) -> Any:
            return shape

        def call(self, x: Any) -> Any:
            return x

    with pytest.raises(InvalidSetting, match=r"\(own\).*because of dynamic"):
        models.estimator(_of_layers(tf_keras, Own()), tmp_path)


def test_features_that_lack_an_input_say_which(tmp_path: Path) -> None:
    a, b = keras.layers.Input((4,), name="a"), keras.layers.Input((4,), name="b")
    model = models.compiled_model(keras, keras.Model([a, b], keras.layers.Add()([a, b])))
    made = models.estimator(model, tmp_path)
    with pytest.raises(InvalidSetting, match="has the inputs a, b, and the features are a: b is"):
        made.evaluate(models.of(lambda rows: models.batches({"a": models.X}, rows=rows)))


def test_a_step_of_an_optimizer_around_another_one_is_refused(tmp_path: Path) -> None:
    descent = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    for outer in (
        MovingAverageOptimizer(descent),
        CrossShardOptimizer(descent, tf.compat.v1.losses.Reduction.SUM),
    ):
        with pytest.raises(InvalidSetting, match="because of optimizer in an optimizer: the outer"):
            models.estimator(models.dense(tf_keras, outer), tmp_path)


@pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="some Keras imports no other backend without"
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
    command = [sys.executable, "-c", program]
    environment = {**os.environ, "KERAS_BACKEND": "numpy"}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "(numpy) cannot become a TPUEstimator because of KERAS_BACKEND" in said.stdout


def test_a_model_that_is_compiled_anew_is_refused(tmp_path: Path) -> None:
    model = models.dense(keras)
    made = models.estimator(model, tmp_path)
    models.compiled_model(keras, model, "adam")
    with pytest.raises(InvalidSetting, match="was compiled again"):
        made.train(models.of(models.batches), steps=1)


def test_what_a_tpu_has_no_op_for_is_refused_there_alone(tmp_path: Path) -> None:
    adam = tf_keras.optimizers.legacy.Adam(amsgrad=True)
    with pytest.raises(InvalidSetting, match="because of amsgrad of a legacy optimizer"):
        models.estimator(models.dense(tf_keras, adam), tmp_path, use_tpu=True)
    models.estimator(models.dense(tf_keras, adam), tmp_path)
