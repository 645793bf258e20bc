"""In a loop on a TPU, as on the CPU, an op runs only if another running op needs it."""

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import tpuserve
import trainer
from tests.trainer import programs
from tpuserve.errors import InvalidSetting

v1 = tf.compat.v1


def estimator(model_dir: Path, model_fn: Any, *, use_tpu: bool) -> trainer.TPUEstimator:
    return programs.estimator(
        model_dir,
        model_fn=model_fn,
        use_tpu=use_tpu,
        train_batch_size=4,
        eval_batch_size=4,
    )


def that_always_trains(features: Any, labels: Any, mode: str) -> Any:
    """Build the spec of the slope model, with a train_op in every mode, as many programs do."""
    w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
    loss = tf.reduce_mean((features["x"] * w - labels) ** 2) / 2.0
    optimizer = trainer.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.5))
    train_op = optimizer.minimize(loss, global_step=v1.train.get_global_step())
    return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def that_leaves_an_update_out(features: Any, labels: Any, mode: str, params: Any) -> Any:
    v1.get_variable("updates", [], initializer=v1.zeros_initializer()).assign_add(1.0)
    return programs.slope_model_fn(features, labels, mode, params)


@pytest.mark.parametrize("use_tpu", [False, True])
def test_an_evaluation_does_not_train(tmp_path: Path, use_tpu: bool) -> None:
    model = estimator(tmp_path, that_always_trains, use_tpu=use_tpu)
    with tpuserve.emulated_tpu(cores=2, compiled=False):
        results = model.evaluate(programs.ones(batch_size=4), steps=4)
    assert results == {"loss": 0.5, "global_step": 0}


@pytest.mark.parametrize("use_tpu", [False, True])
def test_an_update_op_outside_train_op_does_not_run(tmp_path: Path, use_tpu: bool) -> None:
    model = estimator(tmp_path, that_leaves_an_update_out, use_tpu=use_tpu)
    with tpuserve.emulated_tpu(cores=2, compiled=False):
        model.train(programs.ones(batch_size=4), max_steps=4)
    assert programs.variable(tmp_path, "updates") == 0.0
    assert programs.variable(tmp_path, "w") == 1 - 0.5**4


def test_a_model_without_sums_over_replicas_is_refused(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        loss = tf.reduce_mean((features["x"] * w - labels) ** 2)
        optimizer = v1.train.GradientDescentOptimizer(0.5)
        train_op = optimizer.minimize(loss, global_step=v1.train.get_global_step())
        return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    model = estimator(tmp_path, model_fn, use_tpu=True)
    with (
        tpuserve.emulated_tpu(cores=2, compiled=False),
        pytest.raises(InvalidSetting, match="CrossShardOptimizer must be used"),
    ):
        model.train(programs.ones(batch_size=4), max_steps=1)
    with tpuserve.emulated_tpu(cores=1, compiled=False):
        model.train(programs.ones(batch_size=4), max_steps=1)
