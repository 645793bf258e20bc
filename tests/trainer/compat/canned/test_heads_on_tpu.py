"""A head in the model_fn of a TPUEstimator gives the same numbers on the CPU and on TPU cores."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import trainer
from tests.trainer.backends.tpu import slope
from trainer.compat import canned
from trainer.compat.contrib import estimator as contrib

pytestmark = pytest.mark.slow

v1 = tf.compat.v1

FEATURES = (np.arange(16, dtype=np.float32).reshape(8, 2) - 8) / 16
CLASSES = np.array([[0], [1], [2], [0], [1], [2], [0], [1]])

HEADS: dict[str, tuple[Callable[[], Any], Any]] = {
    "multi_class": (lambda: canned.MultiClassHead(3), CLASSES),
    "named_classes": (lambda: canned.MultiClassHead(3), CLASSES),
    "binary_of_contrib": (contrib.binary_classification_head, CLASSES % 2),
    "multi_label": (lambda: canned.MultiLabelHead(2), np.eye(4, 2, dtype=np.int64)[CLASSES[:, 0]]),
    "regression": (canned.RegressionHead, CLASSES.astype(np.float32)),
    "multi": (
        lambda: canned.MultiHead(
            [canned.RegressionHead(name="a"), canned.MultiClassHead(3, name="b")]
        ),
        {"a": CLASSES.astype(np.float32), "b": CLASSES},
    ),
    "multi_of_contrib": (
        lambda: contrib.multi_head(
            [contrib.regression_head(name="a"), contrib.multi_class_head(3, name="b")]
        ),
        {"a": CLASSES.astype(np.float32), "b": CLASSES},
    ),
}


def estimator(kind: str, directory: Path, *, use_tpu: bool) -> trainer.TPUEstimator:
    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        head = HEADS[kind][0]()
        if kind == "named_classes" and mode == trainer.ModeKeys.PREDICT:
            # A TPU takes no strings, and so no labels that need the names.
            head = canned.MultiClassHead(3, label_vocabulary=["a", "b", "c"])
        size = head.logits_dimension
        if isinstance(size, dict):
            size = sum(size.values())
        weights = v1.get_variable("weights", [2, size], initializer=tf.ones_initializer())
        optimizer = trainer.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.125))

        def minimize(loss: Any) -> Any:
            return optimizer.minimize(loss, v1.train.get_global_step())

        return head.create_estimator_spec(
            features=features,
            mode=mode,
            logits=tf.matmul(features["x"], weights),
            labels=labels,
            train_op_fn=minimize,
        )

    return trainer.TPUEstimator(
        model_fn,
        str(directory),
        trainer.RunConfig(tpu_config=trainer.TPUConfig(iterations_per_loop=3)),
        use_tpu=use_tpu,
        # A MultiHead has the metrics of an EstimatorSpec, which a TPU does not take.
        eval_on_tpu=kind != "multi",
        train_batch_size=8,
        eval_batch_size=8,
        predict_batch_size=8,
    )


def run(
    kind: str, directory: Path, keys: Any = None, *, use_tpu: bool
) -> tuple[dict[str, Any], Any, list[Any]]:
    def input_fn(params: Any) -> Any:
        rows = tf.data.Dataset.from_tensor_slices(({"x": FEATURES}, HEADS[kind][1]))
        return rows.repeat(6).batch(params["batch_size"], drop_remainder=True)

    with slope.tpu(2) if use_tpu else nullcontext():
        trained = estimator(kind, directory, use_tpu=use_tpu)
        trained.train(input_fn, steps=6)
        results = trained.evaluate(input_fn, steps=2)
        predictions = list(trained.predict(input_fn, keys))[:8]
    return results, trained.get_variable_value("weights"), predictions


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.on_pjrt_too
@pytest.mark.numeric
def test_a_head_trains_evaluates_and_predicts_on_a_tpu_as_on_the_cpu(
    kind: str, tpu_kind: str, tmp_path: Path
) -> None:
    on_cpu, weights, predicted = run(kind, tmp_path / "cpu", use_tpu=False)
    # PJRT devices have no host that would compute strings.
    is_string = {name: value.dtype == object for name, value in predicted[0].items()}
    keys = [name for name in is_string if not (is_string[name] and tpu_kind == "pjrt")]
    on_tpu, tpu_weights, tpu_predicted = run(kind, tmp_path / "tpu", keys, use_tpu=True)
    np.testing.assert_allclose(tpu_weights, weights, rtol=1e-5)
    assert on_tpu == pytest.approx(on_cpu, rel=1e-5)
    assert on_cpu["global_step"] == 6
    for row, tpu_row in zip(predicted, tpu_predicted, strict=True):
        assert set(tpu_row) == set(keys)
        for name, value in tpu_row.items():
            if is_string[name]:
                assert value.tolist() == row[name].tolist()
            else:
                np.testing.assert_allclose(value, row[name], rtol=1e-4, atol=1e-6)
