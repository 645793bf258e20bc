"""The canned estimators of tf.estimator train, evaluate and predict on trainer's Estimator."""

import importlib
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import trainer
from tests.trainer.compat.canned import models
from tpuserve.errors import InvalidSetting
from trainer.checkpoints.checkpoints import CheckpointShapeMismatch, CheckpointVariableMissing
from trainer.compat.imports import estimator_finder
from trainer.compat.source import estimator_names

v1 = tf.compat.v1

CLASSES = [
    f"{model}{kind}"
    for model in ("Baseline", "DNN", "DNNLinearCombined", "Linear")
    for kind in ("Classifier", "Estimator", "Regressor")
]


def one_batch(features: Any, labels: Any = None) -> Any:
    return lambda: tf.data.Dataset.from_tensors((features, labels) if labels else features).repeat()


def test_a_linear_regressor_makes_the_step_of_its_optimizer(tmp_path: Path) -> None:
    regressor = trainer.LinearRegressor(
        [tf.feature_column.numeric_column("x")],
        str(tmp_path),
        optimizer=tf.keras.optimizers.legacy.SGD(0.25),
    )
    regressor.train(one_batch({"x": [[1.0], [3.0]]}, [[2.0], [4.0]]), steps=1)
    # The gradients of the mean of (y - 0)^2 are -2 * mean(x * y) and -2 * mean(y).
    assert regressor.get_variable_value("linear/linear_model/x/weights").item() == 0.25 * 14
    assert regressor.get_variable_value("linear/linear_model/bias_weights").item() == 0.25 * 6


@pytest.mark.parametrize("give", [lambda new: new(0.25), lambda new: lambda: new(0.25)])
def test_a_new_keras_optimizer_makes_the_same_step(give: Any, tmp_path: Path) -> None:
    column, rows = tf.feature_column.numeric_column("x"), {"x": [[1.0], [3.0]]}
    optimizer = give(tf.keras.optimizers.SGD)
    regressor = trainer.LinearRegressor([column], str(tmp_path), optimizer=optimizer)
    regressor.train(one_batch(rows, [[2.0], [4.0]]), steps=1)
    assert regressor.get_variable_value("linear/linear_model/x/weights").item() == 0.25 * 14


def test_an_optimizer_of_tensorflow_1_is_refused_by_a_class_of_tensorflow_2() -> None:
    optimizer = tf.compat.v1.train.AdamOptimizer()
    column = tf.feature_column.numeric_column("x")
    regressor = trainer.LinearRegressor([column], optimizer=optimizer)
    with pytest.raises(InvalidSetting, match="of TensorFlow 2 got AdamOptimizer"):
        regressor.train(one_batch({"x": [[1.0]]}, [[1.0]]), steps=1)


def test_trainer_has_the_canned_estimators_and_heads_of_tensorflow_2() -> None:
    assert estimator_names.CANNED.keys() <= set(trainer.__all__)
    assert trainer.DNNClassifier.__name__ == "DNNClassifierV2"
    assert issubclass(trainer.DNNClassifier, trainer.Estimator)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("name", CLASSES)
def test_each_class_trains_evaluates_and_predicts(name: str, version: str, tmp_path: Path) -> None:
    module = models.v1_module() if version == "v1" else trainer
    options = {"head": models.v1_head()} if version == "v1" and name.endswith("Estimator") else {}
    estimator = models.build(module, name, tmp_path, **options)
    estimator.train(models.input_fn, steps=200)
    results = estimator.evaluate(models.input_fn, steps=1)
    assert results["global_step"] == 200
    predictions = list(itertools.islice(estimator.predict(models.input_fn), 16))
    if name.startswith("Baseline"):
        assert results["average_loss"] < 0.7
    elif name.endswith("Regressor"):
        assert results["average_loss"] < 0.2
    else:
        assert results["accuracy"] > 0.9
        classes = [row["class_ids"].item() for row in predictions]
        assert np.mean(classes == models.LABELS) == pytest.approx(results["accuracy"])


@pytest.mark.slow
def test_k_means_finds_the_centers_of_two_clusters(tmp_path: Path) -> None:
    points = np.array([[0.0], [1.0], [10.0], [11.0]], np.float32)
    k_means = trainer.KMeans(2, str(tmp_path), "kmeans_plus_plus", seed=1, use_mini_batch=False)

    def input_fn() -> Any:
        return tf.constant(points)

    k_means.train(input_fn, steps=10)
    np.testing.assert_allclose(sorted(k_means.cluster_centers().ravel()), [0.5, 10.5], rtol=1e-5)
    indices = list(itertools.islice(k_means.predict_cluster_index(input_fn), 4))
    assert indices[0] == indices[1] != indices[2] == indices[3]


@pytest.mark.slow
def test_a_linear_classifier_trains_by_sdca(tmp_path: Path) -> None:
    number = tf.feature_column.numeric_column("number")

    def input_fn() -> Any:
        ids = np.arange(16).astype(str)
        features = {"number": models.NUMBERS[:, None], "id": ids}
        return tf.data.Dataset.from_tensors((features, models.LABELS[:, None])).repeat(50)

    classifier = trainer.LinearClassifier(
        [number], str(tmp_path), optimizer=trainer.LinearSDCA(example_id_column="id")
    )
    classifier.train(input_fn, steps=50)
    assert classifier.evaluate(input_fn, steps=1)["accuracy"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("cell_type", ["simple_rnn", "lstm", "gru"])
def test_a_recurrent_classifier_learns_the_order_of_a_sequence(
    cell_type: str, tmp_path: Path
) -> None:
    sequences = np.array([[1, -1], [-1, 1]] * 4, np.float32)

    def input_fn() -> Any:
        labels = (sequences[:, 0] > 0).astype(np.int32)[:, None]
        rows = ({"x": tf.sparse.from_dense(sequences)}, labels)
        return tf.data.Dataset.from_tensors(rows).repeat(200)

    column = tf.feature_column.sequence_numeric_column("x")
    config = trainer.RunConfig(tf_random_seed=1)
    classifier = trainer.RNNClassifier(
        [column],
        units=[8],
        cell_type=cell_type,
        model_dir=str(tmp_path),
        config=config,
        optimizer=tf.keras.optimizers.legacy.Adam(0.1),
    )
    classifier.train(input_fn, steps=100)
    assert classifier.evaluate(input_fn, steps=1)["accuracy"] == 1


@pytest.mark.slow
def test_a_time_series_is_predicted_from_its_past(tmp_path: Path) -> None:
    estimator_finder.install()
    series = importlib.import_module(
        "tensorflow_estimator.python.estimator.canned.timeseries.estimators"
    )
    times = np.arange(12) + np.arange(40)[:, None]

    def input_fn() -> Any:
        values = np.sin(times / 3, dtype=np.float32)[..., None]
        return tf.data.Dataset.from_tensors({"times": times, "values": values}).repeat()

    config = trainer.RunConfig(tf_random_seed=1)
    regressor = series.LSTMAutoRegressor(10, 8, 4, str(tmp_path), num_units=8, config=config)
    regressor.train(input_fn, steps=200)
    results = regressor.evaluate(input_fn, steps=1)
    assert results["mean"].shape == (40, 4, 1)
    np.testing.assert_array_equal(results["times"], times[:, 8:])
    # The sine itself has a variance of 1 / 2.
    assert np.mean((results["mean"] - results["observed"]) ** 2) < 0.1


@pytest.mark.slow
def test_train_and_evaluate_exports_the_best_model(tmp_path: Path) -> None:
    classifier = models.build(trainer, "DNNClassifier", tmp_path)
    receiver = trainer.build_parsing_serving_input_receiver_fn(models.SPEC)
    trainer.train_and_evaluate(
        classifier,
        trainer.TrainSpec(models.input_fn, max_steps=20),
        trainer.EvalSpec(
            models.input_fn, steps=1, exporters=trainer.BestExporter("best", receiver)
        ),
    )
    assert len(list((tmp_path / "export/best").iterdir())) == 1


@pytest.mark.slow
def test_a_classifier_is_warm_started_from_another(tmp_path: Path) -> None:
    first = models.build(trainer, "DNNClassifier", tmp_path / "first")
    first.train(models.input_fn, steps=50)
    second = models.build(
        trainer, "DNNClassifier", tmp_path / "second", warm_start_from=str(tmp_path / "first")
    )
    second.train(models.input_fn, steps=1)
    kernel, start = (
        estimator.get_variable_value("dnn/hiddenlayer_0/kernel") for estimator in (second, first)
    )
    # A step of Adam changes each weight by its rate of 0.1 at most.
    np.testing.assert_allclose(kernel, start, atol=0.11)


def train(directory: Path, features: Any, labels: Any, **options: Any) -> None:
    """Train a classifier by the numbers in the features a and, if it is there, b."""
    columns = [tf.feature_column.numeric_column(name) for name in ("a", "b")[: len(features)]]
    classifier = trainer.LinearClassifier(columns, str(directory), **options)
    classifier.train(one_batch(features, labels), steps=1)


def test_a_column_that_the_features_lack_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting) as raised:
        train(tmp_path, {"z": [[1.0]]}, [[0]])
    assert str(raised.value) == (
        "a feature column reads the feature 'a', and the features are 'z'. Return it from "
        "input_fn, or leave the column out."
    )


@pytest.mark.parametrize(
    ("label", "options"),
    [(2, {}), (-1, {}), (3, {"n_classes": 3}), ("c", {"label_vocabulary": ["a", "b"]})],
)
def test_a_label_that_is_no_class_is_refused(
    label: Any, options: dict[str, Any], tmp_path: Path
) -> None:
    last = options.get("n_classes", 2) - 1
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=f"a label that is not from 0 to {last}"
    ):
        train(tmp_path, {"a": [[1.0]]}, [[label]], **options)


def test_a_head_that_does_not_fit_the_logits_is_refused() -> None:
    with tf.Graph().as_default(), pytest.raises(InvalidSetting) as raised:
        trainer.MultiClassHead(3).create_estimator_spec({}, "infer", tf.zeros([1, 2]))
    assert str(raised.value) == (
        "a head with 3 logits for an example got logits of shape (1, 2). Give shape [batch, 3]."
    )


def test_two_heads_of_one_name_are_refused() -> None:
    head = trainer.RegressionHead(name="a")
    with pytest.raises(InvalidSetting, match=r"the names \['a', 'a'\]. Give each head a name"):
        trainer.MultiHead([head, head])


@pytest.mark.slow
def test_a_checkpoint_of_other_columns_is_refused(tmp_path: Path) -> None:
    train(tmp_path, {"a": [[1.0]]}, [[0]])
    with pytest.raises(CheckpointVariableMissing, match="lacks variables of the model") as raised:
        train(tmp_path, {"a": [[1.0]], "b": [[1.0]]}, [[0]])
    assert "linear/linear_model/b/weights" in str(raised.value)


@pytest.mark.slow
def test_a_checkpoint_of_another_shape_is_refused(tmp_path: Path) -> None:
    train(tmp_path, {"a": [[1.0]]}, [[0]])
    with pytest.raises(
        CheckpointShapeMismatch, match=r"has shape \[1, 3\] in the model and \[1, 1\]"
    ):
        train(tmp_path, {"a": [[1.0]]}, [[0]], n_classes=3)
