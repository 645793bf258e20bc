"""Ops of model_fn that XLA cannot compile, which the host runs if soft placement is allowed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import trainer
from tests.trainer import exports, programs
from tests.trainer.backends.tpu import slope
from tests.trainer.compat.program_runner import read_scalars
from tests.trainer.programs import variable
from tpuserve.errors import UnsupportedOnTpu
from tpuserve.tensorflow_internals import eager_context

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def soft_placement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do as tf.config.set_soft_device_placement(True), and undo it at the end."""
    monkeypatch.setattr(eager_context.context(), "_soft_device_placement", True)


def train(directory: Path, on_host: Any, steps: int = 4, input_fn: Any = None) -> None:
    """Train y = w x on two cores, with the ops that `on_host` builds before each step's update."""

    def build(features: Any, labels: Any, mode: str) -> Any:
        w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        y = features["x"] * w
        loss = tf.reduce_mean((y - labels) ** 2) / 2.0
        optimizer = trainer.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.5))
        with tf.control_dependencies(on_host(features["x"], loss)):
            train_op = optimizer.minimize(loss, v1.train.get_global_step())
        return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    with slope.tpu(2, compiled=True):
        config = trainer.RunConfig(trainer.TPUConfig(2), model_dir=str(directory))
        model = trainer.TPUEstimator(build, config=config, train_batch_size=4)
        model.train(input_fn or slope.ones(), max_steps=steps)


@pytest.mark.slow
@pytest.mark.on_pjrt_too
@pytest.mark.numeric
def test_summaries_of_model_fn_are_written_by_the_host_at_their_steps(tmp_path: Path) -> None:
    def summarize(x: Any, loss: Any) -> Any:
        writer = tf.summary.create_file_writer(str(tmp_path / "own"))
        step = v1.train.get_global_step()
        is_due = tf.equal(step % 2, 0)
        with (
            tf.control_dependencies([writer.init()]),
            writer.as_default(),
            tf.summary.record_if(is_due),
        ):
            tf.summary.scalar("loss", loss, step)
        return v1.summary.all_v2_summary_ops()

    train(tmp_path, summarize)
    # With w = 1 - 0.5^n after n steps, the loss is (1 - w)^2 / 2 = 0.25^n / 2.
    assert read_scalars(tmp_path / "own") == {"loss": {0: 0.5, 2: 0.03125}}
    assert variable(tmp_path, "w") == pytest.approx(1 - 0.5**4)


@pytest.mark.slow
@pytest.mark.on_pjrt_too
def test_a_print_runs_on_each_replica_in_each_step(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path, lambda x, loss: [tf.print("loss is", loss)], steps=2)
    assert sorted(capfd.readouterr().err.split("loss is ")[1:]) == ["0.125\n"] * 2 + ["0.5\n"] * 2


@pytest.mark.slow
@pytest.mark.on_pjrt_too
def test_replicas_may_disagree_on_whether_the_host_runs_an_op(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def input_fn() -> Any:  # Replica 0 gets the rows 0 and 0, replica 1 the rows 1 and 1.
        x = tf.constant([[0.0], [0.0], [1.0], [1.0]])
        return tf.data.Dataset.from_tensors(({"x": x}, x)).repeat()

    def print_positive(x: Any, loss: Any) -> Any:
        row = tf.reduce_sum(x)
        return [tf.cond(row > 0, lambda: tf.group(tf.print("sum is", row)), tf.no_op)]

    train(tmp_path, print_positive, 2, input_fn)
    assert capfd.readouterr().err.split("sum is ")[1:] == ["2\n", "2\n"]


def use_python(x: Any, loss: Any) -> Any:
    doubled = tf.numpy_function(lambda value: value * 2, [loss], tf.float32)
    doubled.set_shape([])
    return [tf.debugging.assert_near(doubled + 0.0, loss * 2)]


def test_the_tpu_computes_with_what_a_python_function_returns(tmp_path: Path) -> None:
    train(tmp_path, use_python)
    assert variable(tmp_path, "w") == pytest.approx(1 - 0.5**4)


@pytest.mark.slow
def test_pjrt_devices_refuse_an_op_of_the_host_whose_result_they_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jax")
    monkeypatch.setattr(slope, "tpu_kind", "pjrt")
    with pytest.raises(UnsupportedOnTpu, match=r"PyFunc .*\.py:\d+.*devices takes its result"):
        train(tmp_path, use_python)


@pytest.mark.slow
def test_pjrt_devices_refuse_an_op_of_the_host_that_changes_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jax")
    monkeypatch.setattr(slope, "tpu_kind", "pjrt")

    def count(x: Any, loss: Any) -> Any:
        count = v1.get_variable("count", [], initializer=v1.zeros_initializer())

        def tell() -> Any:
            with tf.control_dependencies([tf.print(loss)]):
                return tf.group(count.assign_add(1.0))

        return [tf.cond(loss > 0, tell, tf.no_op)]

    with pytest.raises(UnsupportedOnTpu, match=r"AssignAdd.*uses a variable of the devices"):
        train(tmp_path, count)


def test_without_soft_placement_the_op_is_refused_with_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eager_context.context(), "_soft_device_placement", None)
    with pytest.raises(UnsupportedOnTpu, match=r"StringFormat .*set_soft_device_placement\(True\)"):
        train(tmp_path, lambda x, loss: [tf.print(loss)])


@pytest.mark.slow
def test_an_export_names_classes_on_the_host(tmp_path: Path) -> None:
    def build(features: Any, labels: Any, mode: str, params: Any) -> Any:
        if mode != trainer.ModeKeys.PREDICT:
            return programs.slope_model_fn(features, labels, mode, params)
        w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        y = features["x"] * w
        outputs = {"y": y, "text": tf.strings.as_string(y * 2.0, precision=1)}
        return trainer.TPUEstimatorSpec(mode, predictions=outputs)

    directory = exports.export(tmp_path, model_fn=build)
    outputs = exports.answers(directory, {"x": np.array([[3.0]], np.float32)})
    assert outputs["y"].tolist() == [[1.5]]
    assert outputs["text"].tolist() == [[b"3.0"]]
