"""What a model is made of, and compiled with, is in the estimator as it is in model.fit."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import trainer
from tests.trainer.keras import models
from tpuserve.errors import CheckpointMismatch, InvalidSetting, InvalidType
from trainer import to_keras

pytestmark = [pytest.mark.slow, pytest.mark.numeric]

_each_kind = pytest.mark.parametrize("kind", models.KINDS, ids=lambda kind: kind.__name__)

# About what Keras 3 does.
_numpy_warns = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def _check(kind: Any, make: Any, place: Path, dataset: Any) -> None:
    """Steps, weights and metrics on four cores are those of fit and evaluate."""
    fitted = make()
    expected = models.fit(kind, fitted, dataset)
    metrics = fitted.evaluate(dataset(), verbose=0, return_dict=True)
    made = models.train(make(), place, 4, dataset)
    with models.emulated(4):
        found = made.evaluate(models.of(dataset))
    assert models.losses(place) == pytest.approx(expected, rel=1e-5)
    assert {name: found[name] for name in metrics} == pytest.approx(metrics, rel=1e-5)
    models.assert_same(to_keras(made), fitted)


@_each_kind
def test_two_named_inputs_and_outputs_have_their_losses_and_metrics(
    kind: Any, tmp_path: Path
) -> None:
    layers = kind.layers

    def make() -> Any:
        a, b = layers.Input((4,), name="a"), layers.Input((2,), name="b")
        hidden = layers.Concatenate()([layers.Dense(3, name="left")(a), b])
        outputs = {
            "kind": layers.Dense(3, activation="softmax", name="kind")(hidden),
            "size": layers.Dense(1, name="size", kernel_regularizer="l2")(hidden),
        }
        model = kind.Model({"a": a, "b": b}, outputs)
        model.compile(
            "adam",
            loss={"kind": "sparse_categorical_crossentropy", "size": "mse"},
            loss_weights={"kind": 1.0, "size": 0.25},
            metrics={"kind": ["accuracy"], "size": ["mae"]},
        )
        return models.with_weights(model)

    def dataset(rows: int = 8) -> Any:
        x = {"a": models.X, "b": models.X[:, :2]}
        return models.batches(x, {"kind": models.Y, "size": models.X[:, :1]}, rows=rows)

    _check(kind, make, tmp_path, dataset)


@_each_kind
def test_weights_of_rows_and_of_classes_count_in_loss_and_metrics(
    kind: Any, tmp_path: Path
) -> None:
    weights = np.linspace(0.0, 2.0, len(models.X)).astype("float32")

    def make() -> Any:
        metrics = {"metrics": ["accuracy"], "weighted_metrics": ["sparse_categorical_accuracy"]}
        return models.dense(kind, kind.optimizers.SGD(0.1), **metrics)

    def dataset(rows: int = 8) -> Any:
        return models.batches(weights=weights, rows=rows)

    _check(kind, make, tmp_path, dataset)


@_each_kind
def test_class_weights_count_as_in_fit(kind: Any, tmp_path: Path) -> None:
    fitted = models.dense(kind)
    models.fit(kind, fitted, class_weight={0: 3.0, 1: 1.0, 2: 0.5})
    made = models.train(models.dense(kind), tmp_path, 4, class_weight={0: 3.0, 1: 1.0, 2: 0.5})
    models.assert_same(to_keras(made), fitted)


@_each_kind
def test_losses_that_are_sums_and_functions_and_added_ones_are_those_of_fit(
    kind: Any, tmp_path: Path
) -> None:
    class Added(kind.layers.Layer):
        def call(self, x: Any) -> Any:
            self.add_loss(0.1 * tf.reduce_mean(x**2))
            return x

    def squares(y_true: Any, y_pred: Any) -> Any:
        return tf.reduce_mean((y_pred - tf.cast(y_true, tf.float32)) ** 2, axis=-1)

    def make() -> Any:
        x = kind.layers.Input((4,))
        hidden = Added()(kind.layers.Dense(3, name="hidden", activity_regularizer="l2")(x))
        outputs = [kind.layers.Dense(1, name=name)(hidden) for name in ("sum", "function")]
        model = kind.Model(x, outputs)
        loss = [kind.losses.MeanSquaredError(reduction="sum"), squares]
        model.compile(kind.optimizers.SGD(0.01), loss=loss, loss_weights=[0.5, 2.0])
        return models.with_weights(model)

    def dataset(rows: int = 8) -> Any:
        y = models.X[:, :1]
        return models.batches(y=(y, -y), rows=rows)

    _check(kind, make, tmp_path, dataset)


@_each_kind
def test_moving_averages_are_means_over_the_replicas(kind: Any, tmp_path: Path) -> None:
    def make() -> Any:
        layers = [kind.layers.Input((4,)), kind.layers.BatchNormalization(momentum=0.5)]
        model = kind.Sequential([*layers, kind.layers.Dense(3)])
        return models.with_weights(models.compiled_model(kind, model, kind.optimizers.SGD(0.0)))

    def average(model: Any) -> Any:
        (found,) = (
            each for each in model.weights if each.name.endswith(("moving_mean", "moving_mean:0"))
        )
        return found.numpy()

    fitted = make()
    models.fit(kind, fitted)
    for cores in (0, 4):
        made = models.train(make(), tmp_path / str(cores), cores)
        np.testing.assert_allclose(average(to_keras(made)), average(fitted), rtol=1e-5)


@_each_kind
def test_synchronized_batch_normalization_is_that_of_the_whole_batch(
    kind: Any, tmp_path: Path
) -> None:
    def make() -> Any:
        layers = [kind.layers.Input((4,)), kind.layers.BatchNormalization(synchronized=True)]
        model = kind.Sequential([*layers, kind.layers.Dense(3)])
        return models.with_weights(models.compiled_model(kind, model, kind.optimizers.SGD(0.1)))

    fitted = make()
    models.fit(kind, fitted)
    models.assert_same(to_keras(models.train(make(), tmp_path, 4)), fitted)


@_each_kind
def test_batches_as_fit_takes_them_are_made_ready_for_a_tpu(kind: Any, tmp_path: Path) -> None:
    fitted = models.dense(kind, metrics=["accuracy"])
    x, y = models.X[:44].astype("float64"), models.Y[:44].astype("int64")

    def dataset(rows: int = 8) -> Any:
        return tf.data.Dataset.from_tensor_slices((x, y)).batch(rows)

    models.fit(kind, fitted, lambda: dataset().take(5))
    metrics = fitted.evaluate(dataset(), verbose=0, return_dict=True)
    made = models.estimator(models.dense(kind, metrics=["accuracy"]), tmp_path, use_tpu=True)
    with models.emulated(2):
        made.train(lambda: dataset(11), steps=5)
        found = made.evaluate(lambda: dataset(11))
    # 44 rows: five batches of 8 in training, and one of 4 besides in evaluation.
    assert {name: found[name] for name in metrics} == pytest.approx(metrics, rel=1e-5)
    models.assert_same(to_keras(made), fitted)


@_each_kind
def test_each_replica_and_step_drops_other_units(kind: Any, tmp_path: Path) -> None:
    def make() -> Any:
        x = kind.layers.Input((128,))
        columns = kind.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        outputs = columns(kind.layers.Dropout(0.5, seed=1)(x))
        model = kind.Model(x, outputs)
        model.compile(kind.optimizers.SGD(1.0), lambda y, y_pred: -y_pred)
        return model

    def dataset(rows: int = 4) -> Any:
        ones = np.ones([8, 128], "float32")
        return models.batches(ones, ones[:, :1], rows=rows)

    for cores in (0, 4):
        made = models.train(make(), tmp_path / str(cores), cores, dataset, train_batch_size=4)
        # Half of 128 ones, doubled, in each of 2 steps x 4 rows: the mean step is 2 x 1.
        (kernel,) = to_keras(made).get_weights()
        units = (kernel - 1.0) * 2
        assert units.min() >= 0
        assert units.mean() == pytest.approx(4.0, abs=1.0)
        assert len(np.unique(units.round(3))) > 3


@_each_kind
def test_a_subclassed_model_is_built_by_its_first_batch(kind: Any, tmp_path: Path) -> None:
    class Own(kind.Model):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = kind.layers.Dense(5, activation="tanh")
            self.last = kind.layers.Dense(3)

        def call(self, x: Any, training: bool = False) -> Any:
            return self.last(self.hidden(x))

    made = models.train(models.compiled_model(kind, Own(), "adam"), tmp_path, 4)
    with models.emulated(4):
        (found, *_) = made.predict(models.of(models.batches))
    model = to_keras(made)
    assert int(model.optimizer.iterations) == 6
    np.testing.assert_allclose(found["output_1"], model(models.X[:1])[0], rtol=1e-5)


@_each_kind
def test_masked_sequences_have_the_metrics_of_evaluate(kind: Any, tmp_path: Path) -> None:
    words = np.random.RandomState(2).randint(0, 7, [48, 5]).astype("int32")

    def dataset(rows: int = 8) -> Any:
        return models.batches(words, words % 2, rows=rows)

    embedding = kind.layers.Embedding(7, 4, mask_zero=True)
    model = kind.Sequential(
        [kind.layers.Input((5,), dtype="int32"), embedding, kind.layers.Dense(2)]
    )
    models.with_weights(models.compiled_model(kind, model, weighted_metrics=["accuracy"]))
    metrics = model.evaluate(dataset(), verbose=0, return_dict=True)
    for cores in (0, 4):
        made = models.estimator(model, tmp_path, use_tpu=cores > 0)
        with models.emulated(cores):
            found = made.evaluate(models.of(dataset))
        assert found["accuracy"] == pytest.approx(metrics["accuracy"], rel=1e-5)


def test_a_recurrent_layer_has_gradients_that_xla_compiles(tmp_path: Path) -> None:
    (_, kind) = models.KINDS
    layers = [kind.layers.Input((4, 1)), kind.layers.LSTM(2), kind.layers.Dense(3)]

    def dataset(rows: int = 8) -> Any:
        return models.batches(models.X[:, :, None], rows=rows)

    def make() -> Any:
        return models.with_weights(models.compiled_model(kind, kind.Sequential(layers)))

    fitted = make()
    start = fitted.get_weights()
    models.fit(kind, fitted, dataset, steps_per_epoch=1)
    expected = fitted.get_weights()
    fitted.set_weights(start)
    made = models.estimator(fitted, tmp_path, use_tpu=True)
    with models.emulated(2, compiled=True):
        made.train(models.of(dataset), steps=1)
    for found, one in zip(to_keras(made).get_weights(), expected, strict=True):
        np.testing.assert_allclose(found, one, rtol=1e-5, atol=1e-6)


def test_embeddings_have_gradients_that_xla_compiles_on_one_core(tmp_path: Path) -> None:
    (_, kind) = models.KINDS
    layers = [kind.layers.Input((4,)), kind.layers.Embedding(7, 2), kind.layers.Flatten()]
    words = np.arange(48 * 4).reshape([48, 4]).astype("int32") % 7

    def dataset(rows: int = 8) -> Any:
        return models.batches(words, rows=rows)

    model = kind.Sequential([*layers, kind.layers.Dense(3)])
    momentum = kind.optimizers.legacy.SGD(0.1, momentum=0.9)
    before = models.with_weights(models.compiled_model(kind, model, momentum)).get_weights()[0]
    made = models.estimator(model, tmp_path, use_tpu=True)
    with models.emulated(1, compiled=True):
        made.train(models.of(dataset), steps=1)
    assert (to_keras(made).get_weights()[0] != before).all()


@_each_kind
def test_mixed_bfloat16_trains_on_cores_as_in_fit(kind: Any, tmp_path: Path) -> None:
    def make() -> Any:
        hidden = kind.layers.Dense(5, activation="tanh", dtype="mixed_bfloat16")
        last = kind.layers.Dense(3, dtype="float32")
        model = kind.Sequential([kind.layers.Input((4,)), hidden, last])
        return models.with_weights(models.compiled_model(kind, model))

    fitted = make()
    models.fit(kind, fitted)
    models.assert_same(to_keras(models.train(make(), tmp_path, 4)), fitted, 2e-2)


@_each_kind
def test_averaged_weights_are_those_that_are_evaluated(kind: Any, tmp_path: Path) -> None:
    def make() -> Any:
        optimizer = kind.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5)
        return models.dense(kind, optimizer, metrics=["accuracy"])

    fitted = make()
    before = fitted.evaluate(models.batches(), verbose=0, return_dict=True)
    made = models.estimator(make(), tmp_path)
    assert made.evaluate(models.of(models.batches))["loss"] == pytest.approx(before["loss"])
    models.fit(kind, fitted)
    after = fitted.evaluate(models.batches(), verbose=0, return_dict=True)
    made.train(models.of(models.batches), steps=6)
    assert made.evaluate(models.of(models.batches))["loss"] == pytest.approx(after["loss"])


@_each_kind
def test_training_goes_on_from_fit_and_fit_from_training(kind: Any, tmp_path: Path) -> None:
    whole = models.dense(kind, "adam")
    models.fit(kind, whole)
    models.fit(kind, whole)
    models.fit(kind, whole)
    model = models.dense(kind, "adam")
    models.fit(kind, model)
    made = models.train(model, tmp_path, 4)
    assert made.get_variable_value("global_step") == 12
    models.fit(kind, to_keras(made))
    models.assert_same(model, whole)


@_numpy_warns
@pytest.mark.filterwarnings("ignore:.* HDF5 file:UserWarning")
@_each_kind
@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_a_file_of_a_model_trains_on_from_where_it_was_saved(
    kind: Any, suffix: str, tmp_path: Path
) -> None:
    model = models.dense(kind, "adam")
    models.fit(kind, model)
    path = tmp_path / f"model.{suffix}"
    model.save(path)
    made = models.estimator(None, tmp_path / "run", keras_model_path=str(path))
    made.train(models.of(models.batches), steps=6)
    models.fit(kind, model)
    models.assert_same(to_keras(made), model)


def test_a_model_dir_goes_on_with_a_model_made_by_the_same_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (kind, _) = models.KINDS
    models.train(models.dense(kind, metrics=["accuracy"]), tmp_path, 0)
    with caplog.at_level(logging.INFO, "tensorflow.trainer"):
        again = models.train(models.dense(kind, metrics=["accuracy"]), tmp_path, 0)
    assert again.get_variable_value("global_step") == 12
    assert "optimizer SGD(0.01); loss sparse_categorical_crossentropy" in caplog.text
    assert "metrics accuracy; 4 trainable and 0 other weights, 2 optimizer variables" in caplog.text
    assert "model.ckpt-6" in caplog.text
    with pytest.raises(CheckpointMismatch, match="does not belong to this model"):
        models.estimator(models.dense(kind, "adam"), tmp_path)


@_numpy_warns
@_each_kind
def test_a_file_that_needs_classes_of_its_own_says_so(kind: Any, tmp_path: Path) -> None:
    class Twice(kind.layers.Layer):
        def call(self, x: Any) -> Any:
            return 2.0 * x

    model = kind.Sequential([kind.layers.Input((4,)), Twice(), kind.layers.Dense(3)])
    models.compiled_model(kind, model).save(tmp_path / "model.keras")
    path = str(tmp_path / "model.keras")
    with pytest.raises(InvalidSetting, match="cannot load it: .* as custom_objects"):
        models.estimator(None, tmp_path, keras_model_path=path)
    made = models.estimator(None, tmp_path, keras_model_path=path, custom_objects={"Twice": Twice})
    assert isinstance(to_keras(made).layers[0], Twice)


def test_what_is_no_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="neither is"):
        trainer.model_to_tpu_estimator()
    with pytest.raises(InvalidType, match=r"must be a keras\.Model"):
        trainer.model_to_tpu_estimator(7)
    with pytest.raises(InvalidSetting, match="which does not exist"):
        trainer.model_to_tpu_estimator(keras_model_path=str(tmp_path / "none"))
    with pytest.raises(InvalidSetting, match="without a SavedModel"):
        trainer.model_to_tpu_estimator(keras_model_path=str(tmp_path))
    with pytest.raises(InvalidType, match="from model_to_tpu_estimator"):
        to_keras(7)  # type: ignore[arg-type]
