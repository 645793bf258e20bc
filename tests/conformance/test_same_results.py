"""Evaluation, prediction and checkpoints are the same on the CPU and on any number of cores."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import trainer
from tests.conformance.devices import CPU, Device, cores, variables

pytestmark = pytest.mark.numeric

v1 = tf.compat.v1

_BATCH = 16
# Two full batches of 16 rows and a final batch of 5, which 8 cores cannot share evenly.
_ROWS = 37

_random = np.random.default_rng(0)
_X = _random.normal(size=[_ROWS, 6]).astype(np.float32)
_LABELS = _random.integers(0, 3, _ROWS).astype(np.int32)


def _metrics(labels: Any, logits: Any) -> Any:
    classes = tf.argmax(logits, 1, output_type=tf.int32)
    return {
        "accuracy": v1.metrics.accuracy(labels, classes),
        "auc": v1.metrics.auc(tf.equal(labels, 0), tf.nn.softmax(logits)[:, 0]),
        "mean_logit": v1.metrics.mean(logits),
    }


def _model_fn(features: Any, labels: Any, mode: str) -> Any:
    hidden = v1.layers.dense(features["x"], 8, activation=tf.nn.tanh)
    logits = v1.layers.dense(hidden, 3)
    if mode == trainer.ModeKeys.PREDICT:
        return trainer.TPUEstimatorSpec(
            mode, predictions={"row": features["x"], "probabilities": tf.nn.softmax(logits)}
        )
    loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
    if mode == trainer.ModeKeys.EVAL:
        return trainer.TPUEstimatorSpec(mode, loss=loss, eval_metrics=(_metrics, [labels, logits]))
    # The large epsilon limits the effect of rounding errors on a weight whose gradient is almost 0.
    optimizer = trainer.CrossShardOptimizer(v1.train.AdamOptimizer(0.02, epsilon=1e-3))
    train_op = optimizer.minimize(loss, global_step=v1.train.get_global_step())
    return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def _training(params: Any) -> Any:
    rows = tf.data.Dataset.from_tensor_slices(({"x": _X}, _LABELS)).repeat()
    return rows.batch(params["batch_size"], drop_remainder=True)


def _once(params: Any) -> Any:
    return tf.data.Dataset.from_tensor_slices(({"x": _X}, _LABELS)).batch(params["batch_size"])


def _estimator(device: Device, model_dir: Path) -> trainer.TPUEstimator:
    return device.estimator(_model_fn, model_dir, batch_size=_BATCH)


@pytest.fixture(scope="module")
def trained_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model_dir = tmp_path_factory.mktemp("model")
    _estimator(CPU, model_dir).train(_training, max_steps=5)
    return model_dir


@pytest.mark.parametrize("device", [cores(8, compiled=True), cores(1)], ids=str)
@pytest.mark.parametrize("steps", [None, 2])
def test_metrics_and_loss_are_the_cpus(
    device: Device, steps: int | None, trained_model_dir: Path
) -> None:
    expected = _estimator(CPU, trained_model_dir).evaluate(_once, steps=steps)
    with device.activate():
        metrics = _estimator(device, trained_model_dir).evaluate(_once, steps=steps)
    assert metrics.keys() == expected.keys() == {
        "accuracy", "auc", "mean_logit", "loss", "global_step"
    }  # fmt: skip
    for name, value in expected.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-6, atol=1e-6, err_msg=name)


def test_the_metrics_are_those_of_all_rows(trained_model_dir: Path) -> None:
    logits = _predict(CPU, trained_model_dir)["probabilities"]
    accuracy = np.mean(logits.argmax(1) == _LABELS)
    with cores(8).activate():
        metrics = _estimator(cores(8), trained_model_dir).evaluate(_once)
    assert metrics["accuracy"] == pytest.approx(accuracy, abs=1e-6)
    loss = -np.mean(np.log(logits[np.arange(_ROWS), _LABELS]))
    assert metrics["loss"] == pytest.approx(loss, rel=1e-5)


def _predict(device: Device, model_dir: Path) -> dict[str, np.ndarray[Any, Any]]:
    with device.activate():
        rows = list(_estimator(device, model_dir).predict(_once))
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


@pytest.mark.parametrize("device", [cores(8, compiled=True), cores(1)], ids=str)
def test_predictions_are_the_cpus_in_order(device: Device, trained_model_dir: Path) -> None:
    predictions = _predict(device, trained_model_dir)
    np.testing.assert_array_equal(predictions["row"], _X)
    expected = _predict(CPU, trained_model_dir)["probabilities"]
    np.testing.assert_allclose(predictions["probabilities"], expected, rtol=1e-6, atol=1e-6)


_THREE = (CPU, cores(1), cores(8))


@pytest.fixture(scope="module")
def stayed(tmp_path_factory: pytest.TempPathFactory) -> trainer.TPUEstimator:
    """Train on the CPU alone for 3 steps, and then to step 6; return the estimator."""
    estimator = _estimator(CPU, tmp_path_factory.mktemp("stayed"))
    for last_step in (3, 6):
        estimator.train(_training, max_steps=last_step)
    return estimator


@pytest.mark.parametrize("first", range(3), ids=[str(setting) for setting in _THREE])
def test_checkpoints_go_from_device_to_device(
    first: int, stayed: trainer.TPUEstimator, tmp_path: Path
) -> None:
    begins, goes_on, evaluates = (_THREE[(first + offset) % 3] for offset in range(3))
    for device, last_step in ((begins, 3), (goes_on, 6)):
        with device.activate():
            _estimator(device, tmp_path / "moved").train(_training, max_steps=last_step)
    expected = variables(stayed)
    moved = variables(_estimator(CPU, tmp_path / "moved"))
    # The checkpoint holds the model's variables, Adam's slots and powers, and the global step.
    layer_variables = [f"dense{n}/{kind}" for n in ("", "_1") for kind in ("kernel", "bias")]
    assert moved.keys() == expected.keys() == {
        *layer_variables,
        *(f"{name}/Adam{n}" for name in layer_variables for n in ("", "_1")),
        "beta1_power",
        "beta2_power",
        "global_step",
    }  # fmt: skip
    for name, value in expected.items():
        assert moved[name].dtype == value.dtype
        np.testing.assert_allclose(moved[name], value, rtol=0, atol=1e-5, err_msg=name)
    with evaluates.activate():
        metrics = _estimator(evaluates, tmp_path / "moved").evaluate(_once)
    assert metrics["global_step"] == 6
    assert metrics["loss"] == pytest.approx(stayed.evaluate(_once)["loss"], abs=1e-5)
