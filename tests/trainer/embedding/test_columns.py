"""Feature columns of embedding tables: trained, evaluated, predicted with and exported."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import trainer
from tests.trainer import exports
from tests.trainer.backends.tpu import slope
from tests.trainer.embedding import columns, sums
from tests.trainer.embedding.device_shapes import record_shapes
from tpuserve.errors import InvalidSetting
from tpuserve.runtime import loader
from trainer.embedding.config import EmbeddingConfigSpec
from trainer.embedding.optimization_parameters import AdagradParameters

pytestmark = [pytest.mark.slow, pytest.mark.first]


@dataclass(frozen=True)
class Run:
    """What a trained model gives: its checkpoint, evaluation and predictions."""

    model: trainer.TPUEstimator
    variables: dict[str, Any]
    evaluation: dict[str, Any]
    predictions: Any
    activations: Any


def run_modes(model_dir: Path, *, use_tpu: bool) -> Run:
    model = columns.estimator(model_dir, use_tpu=use_tpu)
    model.train(columns.input_fn, steps=2)
    variables = sums.variables(model_dir)
    evaluation = model.evaluate(columns.input_fn, steps=1)
    rows = list(model.predict(columns.predict_input_fn))
    predictions, activations = (np.stack([row[name] for row in rows]) for name in ("y", "x"))
    return Run(model, variables, evaluation, predictions, activations)


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_modes(tmp_path_factory.mktemp("cpu"), use_tpu=False)


@pytest.fixture(scope="module")
def on_tpu(tmp_path_factory: pytest.TempPathFactory) -> Run:
    with slope.tpu(2):
        return run_modes(tmp_path_factory.mktemp("tpu"), use_tpu=True)


@pytest.fixture(scope="module")
def on_pjrt(tmp_path_factory: pytest.TempPathFactory) -> Run:
    pytest.importorskip("jax")
    with slope.tpu(2, kind="pjrt"), pytest.MonkeyPatch.context() as monkeypatch:
        shapes = record_shapes(monkeypatch)
        run = run_modes(tmp_path_factory.mktemp("pjrt"), use_tpu=True)
    assert shapes, "no table is divided"
    return run


on_both_kinds_of_cores = pytest.mark.parametrize("cores", ["on_tpu", "on_pjrt"])


def test_variables_have_the_names_that_columns_give_them(on_tpu: Run) -> None:
    tables = {
        "dense_features/single_embedding/embedding_weights",
        "dense_features/weighted_weighted_by_weights_embedding/embedding_weights",
        "shared",
        "sequence_features/sequence_embedding/embedding_weights",
    }
    slots = {f"{name}/Adagrad" for name in tables}
    adam = {"kernel/Adam", "kernel/Adam_1", "beta1_power", "beta2_power"}
    assert set(on_tpu.variables) == {*tables, *slots, "kernel", *adam, "global_step"}


@on_both_kinds_of_cores
@pytest.mark.numeric
def test_cores_train_the_variables_of_the_cpu(
    cores: str, on_cpu: Run, request: pytest.FixtureRequest
) -> None:
    # Two steps of a rate of 0.1 in float32, whose sums have other orders.
    trained = request.getfixturevalue(cores).variables
    assert set(on_cpu.variables) == set(trained)
    for name, value in on_cpu.variables.items():
        np.testing.assert_allclose(trained[name], value, atol=1e-5, err_msg=name)


@on_both_kinds_of_cores
@pytest.mark.numeric
def test_cores_evaluate_and_predict_as_the_cpu(
    cores: str, on_cpu: Run, request: pytest.FixtureRequest
) -> None:
    run = request.getfixturevalue(cores)
    assert run.evaluation["loss"] == pytest.approx(on_cpu.evaluation["loss"], rel=1e-5)
    np.testing.assert_allclose(run.predictions, on_cpu.predictions, atol=1e-5)


@pytest.mark.numeric
def test_a_train_op_that_is_built_in_every_mode_is_no_obstacle(on_cpu: Run, on_tpu: Run) -> None:
    for run in (on_cpu, on_tpu):
        loss = np.mean((run.predictions - 1) ** 2)
        assert run.evaluation["loss"] == pytest.approx(loss, rel=1e-5)


@pytest.mark.numeric
def test_activations_are_those_of_tensorflow(on_tpu: Run) -> None:
    # DenseFeatures sorts its columns by name: first, second, single, weighted.
    expected = np.concatenate([*_oracle(on_tpu.variables), [[2], [1], [2], [0]]], 1)
    np.testing.assert_allclose(on_tpu.activations, expected, atol=1e-6)


def _oracle(variables: dict[str, Any]) -> list[Any]:
    """The activations that tf.tpu.experimental.embedding computes for serving."""
    embedding = tf.tpu.experimental.embedding

    def look_up(variable: str, combiner: str, *names: str, length: int = 0) -> list[Any]:
        value = variables[variable]
        table = embedding.TableConfig(*value.shape, combiner=combiner, name=variable)
        config = {name: embedding.FeatureConfig(table, length) for name in names}
        features = {name: columns.sparse(columns.FEATURES[name]) for name in names}
        weights = None
        if names == ("weighted",):
            weights = {"weighted": columns.sparse(columns.FEATURES["weights"])}
        activations = embedding.serving_embedding_lookup(
            features, weights, {table: tf.Variable(value)}, config
        )
        return [activations[name].numpy() for name in names]

    (sequence,) = look_up(
        "sequence_features/sequence_embedding/embedding_weights", "sum", "sequence", length=2
    )
    prefix = "dense_features/weighted_weighted_by_weights_embedding"
    return [
        *look_up("shared", "sum", "first", "second"),
        *look_up("dense_features/single_embedding/embedding_weights", "mean", "single"),
        *look_up(f"{prefix}/embedding_weights", "sqrtn", "weighted"),
        sequence.sum(1),
    ]


@pytest.mark.numeric
def test_both_metagraphs_of_an_export_predict_what_the_estimator_predicts(
    on_tpu: Run, tmp_path: Path
) -> None:
    parsed = {
        name: tf.io.VarLenFeature(tf.float32 if name == "weights" else tf.int64)
        for name in columns.FEATURES
    }
    receiver = trainer.export.build_parsing_serving_input_receiver_fn(parsed)
    model_dir = Path(on_tpu.model.model_dir)
    trained = columns.estimator(model_dir, use_tpu=True, always_trains=False)
    directory = Path(trained.export_saved_model(str(tmp_path), receiver).decode())
    examples = exports.strings([_example(row).SerializeToString() for row in range(4)])
    for tag_set, hardware in exports.HARDWARE.items():
        model = loader.load(directory, tag_set, hardware)
        predictions = model.run("serving_default", {"examples": examples})["y"]
        np.testing.assert_allclose(predictions, on_tpu.predictions, atol=1e-5, err_msg=str(tag_set))
        model.close()


def _example(row: int) -> Any:
    example = tf.train.Example()
    for name, rows in columns.FEATURES.items():
        feature = example.features.feature[name]
        values = feature.float_list if name == "weights" else feature.int64_list
        values.value.extend(rows[row])
    return example


@pytest.mark.numeric
def test_predictions_off_the_tpu_do_without_features_and_columns_of_the_training(
    on_cpu: Run, tmp_path: Path
) -> None:
    (single, *_) = columns.make_columns().plain

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        x = tf.compat.v1.keras.layers.DenseFeatures([single])(features)
        return trainer.TPUEstimatorSpec(mode, predictions={"x": x})

    def input_fn(params: Any) -> Any:
        features = {
            name: columns.sparse(columns.FEATURES[name])
            for name in ("single", "first")  # "first" has a column that model_fn does not use.
        }
        return tf.data.Dataset.from_tensors(features)

    spec = EmbeddingConfigSpec(columns.make_columns().plain, AdagradParameters(0.1))
    model = sums.estimator(tmp_path, spec, use_tpu=False, model=model_fn)
    checkpoint = tf.train.latest_checkpoint(on_cpu.model.model_dir)
    activations = [row["x"] for row in model.predict(input_fn, checkpoint_path=checkpoint)]
    table = on_cpu.variables["dense_features/single_embedding/embedding_weights"]
    expected = [table[row].mean(0) if row else [0.0] * 4 for row in columns.FEATURES["single"]]
    np.testing.assert_allclose(activations, expected, atol=1e-6)


def test_a_column_that_model_fn_does_not_use_is_named(tmp_path: Path) -> None:
    model = sums.estimator(
        tmp_path,
        EmbeddingConfigSpec(columns.make_columns().plain[:1], AdagradParameters(0.1)),
        model=_ignoring_features,
    )
    with slope.tpu(2), pytest.raises(InvalidSetting, match="not use the feature columns of 'sing"):
        model.train(_single, steps=1)


def _single(params: Any) -> Any:
    features = {"single": columns.sparse([[1], [2], [3], [4]])}
    return tf.data.Dataset.from_tensors((features, tf.ones([4, 1]))).repeat()


def _ignoring_features(features: Any, labels: Any, mode: str) -> Any:
    step = tf.compat.v1.train.get_global_step()
    train_op = step.assign_add(1)
    return trainer.TPUEstimatorSpec(mode, loss=tf.reduce_mean(labels), train_op=train_op)
