"""A converted model makes the steps of model.fit, with the same layers and compile() options."""

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

pytestmark = [pytest.mark.slow, pytest.mark.numeric, pytest.mark.first]

_both_kerases = pytest.mark.parametrize(
    "package", models.PACKAGES, ids=lambda package: package.__name__
)

# Keras 3 uses a NumPy interface that is deprecated.
_numpy_warns = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def _assert_trains_like_fit(package: Any, build_model: Any, model_dir: Path, dataset: Any) -> None:
    """Assert that four cores compute the losses, weights and metrics of fit and evaluate."""
    fitted = build_model()
    expected = models.fit_epoch(package, fitted, dataset)
    metrics = fitted.evaluate(dataset(), verbose=0, return_dict=True)
    estimator = models.train_epoch(build_model(), model_dir, 4, dataset)
    with models.emulated_tpu(4):
        results = estimator.evaluate(models.input_fn(dataset))
    assert models.read_losses(model_dir) == pytest.approx(expected, rel=1e-5)
    assert {name: results[name] for name in metrics} == pytest.approx(metrics, rel=1e-5)
    models.assert_same_values(to_keras(estimator), fitted)


@_both_kerases
def test_two_named_inputs_and_outputs_have_their_losses_and_metrics(
    package: Any, tmp_path: Path
) -> None:
    layers = package.layers

    def build_model() -> Any:
        a, b = layers.Input((4,), name="a"), layers.Input((2,), name="b")
        hidden = layers.Concatenate()([layers.Dense(3, name="left")(a), b])
        outputs = {
            "kind": layers.Dense(3, activation="softmax", name="kind")(hidden),
            "size": layers.Dense(1, name="size", kernel_regularizer="l2")(hidden),
        }
        model = package.Model({"a": a, "b": b}, outputs)
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

    _assert_trains_like_fit(package, build_model, tmp_path, dataset)


@_both_kerases
def test_sample_weights_count_in_loss_and_metrics(package: Any, tmp_path: Path) -> None:
    weights = np.linspace(0.0, 2.0, len(models.X)).astype("float32")

    def build_model() -> Any:
        metrics = {"metrics": ["accuracy"], "weighted_metrics": ["sparse_categorical_accuracy"]}
        return models.dense(package, package.optimizers.SGD(0.1), **metrics)

    def dataset(rows: int = 8) -> Any:
        return models.batches(weights=weights, rows=rows)

    _assert_trains_like_fit(package, build_model, tmp_path, dataset)


@_both_kerases
def test_class_weights_count_as_in_fit(package: Any, tmp_path: Path) -> None:
    fitted = models.dense(package)
    models.fit_epoch(package, fitted, class_weight={0: 3.0, 1: 1.0, 2: 0.5})
    estimator = models.train_epoch(
        models.dense(package), tmp_path, 4, class_weight={0: 3.0, 1: 1.0, 2: 0.5}
    )
    models.assert_same_values(to_keras(estimator), fitted)


@_both_kerases
def test_sums_functions_and_added_losses_are_those_of_fit(package: Any, tmp_path: Path) -> None:
    class AddedLossLayer(package.layers.Layer):
        def call(self, x: Any) -> Any:
            self.add_loss(0.1 * tf.reduce_mean(x**2))
            return x

    def squares(y_true: Any, y_pred: Any) -> Any:
        return tf.reduce_mean((y_pred - tf.cast(y_true, tf.float32)) ** 2, axis=-1)

    def build_model() -> Any:
        x = package.layers.Input((4,))
        hidden = AddedLossLayer()(
            package.layers.Dense(3, name="hidden", activity_regularizer="l2")(x)
        )
        outputs = [package.layers.Dense(1, name=name)(hidden) for name in ("sum", "function")]
        model = package.Model(x, outputs)
        loss = [package.losses.MeanSquaredError(reduction="sum"), squares]
        model.compile(package.optimizers.SGD(0.01), loss=loss, loss_weights=[0.5, 2.0])
        return models.with_weights(model)

    def dataset(rows: int = 8) -> Any:
        y = models.X[:, :1]
        return models.batches(y=(y, -y), rows=rows)

    _assert_trains_like_fit(package, build_model, tmp_path, dataset)


@_both_kerases
def test_moving_averages_are_means_over_the_replicas(package: Any, tmp_path: Path) -> None:
    def build_model() -> Any:
        layers = [package.layers.Input((4,)), package.layers.BatchNormalization(momentum=0.5)]
        model = package.Sequential([*layers, package.layers.Dense(3)])
        return models.with_weights(
            models.compiled_model(package, model, package.optimizers.SGD(0.0))
        )

    def average(model: Any) -> Any:
        (moving_mean,) = (
            weight
            for weight in model.weights
            if weight.name.endswith(("moving_mean", "moving_mean:0"))
        )
        return moving_mean.numpy()

    fitted = build_model()
    models.fit_epoch(package, fitted)
    for cores in (0, 4):
        estimator = models.train_epoch(build_model(), tmp_path / str(cores), cores)
        np.testing.assert_allclose(average(to_keras(estimator)), average(fitted), rtol=1e-5)


@_both_kerases
def test_synchronized_batch_normalization_is_that_of_the_whole_batch(
    package: Any, tmp_path: Path
) -> None:
    def build_model() -> Any:
        layers = [package.layers.Input((4,)), package.layers.BatchNormalization(synchronized=True)]
        model = package.Sequential([*layers, package.layers.Dense(3)])
        return models.with_weights(
            models.compiled_model(package, model, package.optimizers.SGD(0.1))
        )

    fitted = build_model()
    models.fit_epoch(package, fitted)
    models.assert_same_values(to_keras(models.train_epoch(build_model(), tmp_path, 4)), fitted)


@_both_kerases
def test_int64_labels_and_a_smaller_last_batch_are_accepted_on_a_tpu(
    package: Any, tmp_path: Path
) -> None:
    fitted = models.dense(package, metrics=["accuracy"])
    x, y = models.X[:44].astype("float64"), models.Y[:44].astype("int64")

    def dataset(rows: int = 8) -> Any:
        return tf.data.Dataset.from_tensor_slices((x, y)).batch(rows)

    models.fit_epoch(package, fitted, lambda: dataset().take(5))
    metrics = fitted.evaluate(dataset(), verbose=0, return_dict=True)
    estimator = models.estimator(
        models.dense(package, metrics=["accuracy"]), tmp_path, use_tpu=True
    )
    with models.emulated_tpu(2):
        estimator.train(lambda: dataset(11), steps=5)
        results = estimator.evaluate(lambda: dataset(11))
    # 44 rows: five batches of 8 in training, and one more of 4 in evaluation.
    assert {name: results[name] for name in metrics} == pytest.approx(metrics, rel=1e-5)
    models.assert_same_values(to_keras(estimator), fitted)


@pytest.mark.on_pjrt_too
@_both_kerases
def test_dropout_differs_between_replicas_and_steps(package: Any, tmp_path: Path) -> None:
    def build_model() -> Any:
        x = package.layers.Input((128,))
        columns = package.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        outputs = columns(package.layers.Dropout(0.5, seed=1)(x))
        model = package.Model(x, outputs)
        model.compile(package.optimizers.SGD(1.0), lambda y, y_pred: -y_pred)
        return model

    def dataset(rows: int = 4) -> Any:
        ones = np.ones([8, 128], "float32")
        return models.batches(ones, ones[:, :1], rows=rows)

    for cores in (0, 4):
        estimator = models.train_epoch(
            build_model(), tmp_path / str(cores), cores, dataset, train_batch_size=4
        )
        # Dropout sets about half of the 128 ones of a row to 0 and doubles the others, so a weight
        # grows by about 1 in each of 2 steps. `units` is the number of (step, row) pairs, of 8, in
        # which a weight's input was kept.
        (kernel,) = to_keras(estimator).get_weights()
        units = (kernel - 1.0) * 2
        assert units.min() >= 0
        assert units.mean() == pytest.approx(4.0, abs=1.0)
        assert len(np.unique(units.round(3))) > 3


@_both_kerases
def test_a_subclassed_model_is_built_by_its_first_batch(package: Any, tmp_path: Path) -> None:
    class Own(package.Model):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = package.layers.Dense(5, activation="tanh")
            self.last = package.layers.Dense(3)

        def call(self, x: Any, training: bool = False) -> Any:
            return self.last(self.hidden(x))

    estimator = models.train_epoch(models.compiled_model(package, Own(), "adam"), tmp_path, 4)
    with models.emulated_tpu(4):
        (prediction, *_) = estimator.predict(models.input_fn(models.batches))
    model = to_keras(estimator)
    assert int(model.optimizer.iterations) == 6
    # An output is a sum of five products below 1, each rounded to 6e-8; it may itself be near 0.
    expected = model(models.X[:1])[0]
    np.testing.assert_allclose(prediction["output_1"], expected, rtol=1e-5, atol=1e-6)


@_both_kerases
def test_masked_sequences_have_the_metrics_of_evaluate(package: Any, tmp_path: Path) -> None:
    words = np.random.RandomState(2).randint(0, 7, [48, 5]).astype("int32")

    def dataset(rows: int = 8) -> Any:
        return models.batches(words, words % 2, rows=rows)

    embedding = package.layers.Embedding(7, 4, mask_zero=True)
    model = package.Sequential(
        [package.layers.Input((5,), dtype="int32"), embedding, package.layers.Dense(2)]
    )
    models.with_weights(models.compiled_model(package, model, weighted_metrics=["accuracy"]))
    metrics = model.evaluate(dataset(), verbose=0, return_dict=True)
    for cores in (0, 4):
        estimator = models.estimator(model, tmp_path, use_tpu=cores > 0)
        with models.emulated_tpu(cores):
            results = estimator.evaluate(models.input_fn(dataset))
        assert results["accuracy"] == pytest.approx(metrics["accuracy"], rel=1e-5)


def test_a_recurrent_layer_has_gradients_that_xla_compiles_on_one_core(tmp_path: Path) -> None:
    (_, package) = models.PACKAGES
    layers = [package.layers.Input((4, 1)), package.layers.LSTM(2), package.layers.Dense(3)]

    def dataset(rows: int = 8) -> Any:
        return models.batches(models.X[:, :, None], rows=rows)

    def build_model() -> Any:
        return models.with_weights(models.compiled_model(package, package.Sequential(layers)))

    fitted = build_model()
    start = fitted.get_weights()
    models.fit_epoch(package, fitted, dataset, steps_per_epoch=1)
    expected = fitted.get_weights()
    fitted.set_weights(start)
    estimator = models.estimator(fitted, tmp_path, use_tpu=True)
    with models.emulated_tpu(1, compiled=True):
        estimator.train(models.input_fn(dataset), steps=1)
    for weight, desired in zip(to_keras(estimator).get_weights(), expected, strict=True):
        np.testing.assert_allclose(weight, desired, rtol=1e-5, atol=1e-6)


def test_embeddings_have_gradients_that_xla_compiles_on_one_core(tmp_path: Path) -> None:
    (_, package) = models.PACKAGES
    layers = [package.layers.Input((4,)), package.layers.Embedding(7, 2), package.layers.Flatten()]
    words = np.arange(48 * 4).reshape([48, 4]).astype("int32") % 7

    def dataset(rows: int = 8) -> Any:
        return models.batches(words, rows=rows)

    model = package.Sequential([*layers, package.layers.Dense(3)])
    momentum = package.optimizers.legacy.SGD(0.1, momentum=0.9)
    before = models.with_weights(models.compiled_model(package, model, momentum)).get_weights()[0]
    estimator = models.estimator(model, tmp_path, use_tpu=True)
    with models.emulated_tpu(1, compiled=True):
        estimator.train(models.input_fn(dataset), steps=1)
    assert (to_keras(estimator).get_weights()[0] != before).all()


@_both_kerases
def test_mixed_bfloat16_trains_on_cores_as_in_fit(package: Any, tmp_path: Path) -> None:
    def build_model() -> Any:
        hidden = package.layers.Dense(5, activation="tanh", dtype="mixed_bfloat16")
        last = package.layers.Dense(3, dtype="float32")
        model = package.Sequential([package.layers.Input((4,)), hidden, last])
        return models.with_weights(models.compiled_model(package, model))

    fitted = build_model()
    models.fit_epoch(package, fitted)
    models.assert_same_values(
        to_keras(models.train_epoch(build_model(), tmp_path, 4)), fitted, 2e-2
    )


@_both_kerases
def test_evaluation_uses_moving_averages_of_the_weights(package: Any, tmp_path: Path) -> None:
    def build_model() -> Any:
        optimizer = package.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5)
        return models.dense(package, optimizer, metrics=["accuracy"])

    fitted = build_model()
    before = fitted.evaluate(models.batches(), verbose=0, return_dict=True)
    estimator = models.estimator(build_model(), tmp_path)
    assert estimator.evaluate(models.input_fn(models.batches))["loss"] == pytest.approx(
        before["loss"]
    )
    models.fit_epoch(package, fitted)
    after = fitted.evaluate(models.batches(), verbose=0, return_dict=True)
    estimator.train(models.input_fn(models.batches), steps=6)
    assert estimator.evaluate(models.input_fn(models.batches))["loss"] == pytest.approx(
        after["loss"]
    )


@_both_kerases
def test_training_continues_from_fit_and_fit_continues_from_training(
    package: Any, tmp_path: Path
) -> None:
    whole = models.dense(package, "adam")
    models.fit_epoch(package, whole)
    models.fit_epoch(package, whole)
    models.fit_epoch(package, whole)
    model = models.dense(package, "adam")
    models.fit_epoch(package, model)
    estimator = models.train_epoch(model, tmp_path, 4)
    assert estimator.get_variable_value("global_step") == 12
    models.fit_epoch(package, to_keras(estimator))
    models.assert_same_values(model, whole)


@_numpy_warns
@pytest.mark.filterwarnings("ignore:.* HDF5 file:UserWarning")
@_both_kerases
@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_a_loaded_model_continues_its_training(package: Any, suffix: str, tmp_path: Path) -> None:
    model = models.dense(package, "adam")
    models.fit_epoch(package, model)
    path = tmp_path / f"model.{suffix}"
    model.save(path)
    estimator = models.estimator(None, tmp_path / "run", keras_model_path=str(path))
    estimator.train(models.input_fn(models.batches), steps=6)
    models.fit_epoch(package, model)
    models.assert_same_values(to_keras(estimator), model)


@_both_kerases
def test_a_warm_start_replaces_the_weights_of_a_built_model(package: Any, tmp_path: Path) -> None:
    def build_model() -> Any:
        return models.dense(package, package.optimizers.SGD(0.1, use_ema=True))

    source = build_model()
    for index, weight in enumerate(source.trainable_weights):
        weight.assign(np.full(weight.shape, index + 1.0))
    models.estimator(source, tmp_path / "source")
    settings = trainer.WarmStartSettings(str(tmp_path / "source"), ".*kernel")
    estimator = models.estimator(build_model(), tmp_path / "target", warm_start_from=settings)
    values = {name: estimator.get_variable_value(name) for name in estimator.get_variable_names()}
    # The first and the third weight of the source are the kernels. Each has a moving average. In
    # tf_keras, each has a momentum of zeros too. The model's own biases are below 1.
    kernels = [value.mean() for name, value in values.items() if "kernel" in name]
    assert sorted(mean for mean in kernels if mean != 0) == [1, 1, 3, 3]
    assert all(value.max() < 1 for name, value in values.items() if "bias" in name)
    assert values["global_step"] == 0


def test_a_checkpoint_fits_a_model_built_again_by_the_same_code(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (package, _) = models.PACKAGES
    models.train_epoch(models.dense(package, metrics=["accuracy"]), tmp_path, 0)
    with caplog.at_level(logging.INFO, "tensorflow.trainer"):
        again = models.train_epoch(models.dense(package, metrics=["accuracy"]), tmp_path, 0)
    assert again.get_variable_value("global_step") == 12
    assert "optimizer SGD(0.01); loss sparse_categorical_crossentropy" in caplog.text
    assert "metrics accuracy; 4 trainable and 0 other weights, 2 optimizer variables" in caplog.text
    assert "model.ckpt-6" in caplog.text
    with pytest.raises(CheckpointMismatch, match="does not belong to this model"):
        models.estimator(models.dense(package, "adam"), tmp_path)


@_numpy_warns
@_both_kerases
def test_a_file_with_custom_classes_needs_custom_objects(package: Any, tmp_path: Path) -> None:
    class Twice(package.layers.Layer):
        def call(self, x: Any) -> Any:
            return 2.0 * x

    model = package.Sequential([package.layers.Input((4,)), Twice(), package.layers.Dense(3)])
    models.compiled_model(package, model).save(tmp_path / "model.keras")
    path = str(tmp_path / "model.keras")
    with pytest.raises(InvalidSetting, match="cannot load it: .* as custom_objects"):
        models.estimator(None, tmp_path, keras_model_path=path)
    estimator = models.estimator(
        None, tmp_path, keras_model_path=path, custom_objects={"Twice": Twice}
    )
    assert isinstance(to_keras(estimator).layers[0], Twice)


def test_arguments_that_are_not_a_model_are_refused(tmp_path: Path) -> None:
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


class _CountingHook(tf.compat.v1.train.SessionRunHook):
    """Counts the calls of session.run in a variable that begin() creates."""

    def begin(self) -> None:
        self._count = tf.compat.v1.get_variable("runs", [], initializer=tf.zeros_initializer())
        self._add = tf.compat.v1.assign_add(self._count, 1.0)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        run_context.session.run(self._add)


@pytest.mark.parametrize("cores", [0, 2])
def test_a_hook_may_create_a_variable_for_a_fitted_model(cores: int, tmp_path: Path) -> None:
    (package, _) = models.PACKAGES
    fitted = models.dense(package)
    models.fit_epoch(package, fitted)
    estimator = models.estimator(fitted, tmp_path, use_tpu=cores > 0)
    with models.emulated_tpu(cores):
        for _ in range(2):
            estimator.train(models.input_fn(models.batches), steps=3, hooks=[_CountingHook()])
    # 6 steps of fit and 6 of the estimator; the second training continues the count of the first.
    assert estimator.get_variable_value("global_step") == 12
    assert estimator.get_variable_value("runs") == 6.0
