"""A model y = w with w = 0 at first, on two replicas: the labels of one are 1, of the other 3."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import tpuserve
import trainer
from tests.trainer import programs
from tpuserve.errors import InvalidSetting

v1 = tf.compat.v1
RATE = 0.25


def two_replicas() -> Any:
    return tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])


def labels_of_two_replicas(batch_size: int = 2) -> Any:
    """Return an input of batches with the label 1, 3, 1, 3 and so on."""
    dataset = tf.data.Dataset.from_tensor_slices([1.0, 3.0])
    dataset = dataset.interleave(
        lambda label: tf.data.Dataset.from_tensors(label).repeat(batch_size),
        cycle_length=1,
        block_length=batch_size,
    )
    return dataset.repeat().batch(batch_size).map(lambda label: ({"x": label}, label))


def build_model_fn(
    train: Callable[[Any, Any], Any], reduction: str = v1.losses.Reduction.SUM_BY_NONZERO_WEIGHTS
) -> Callable[..., Any]:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        loss = v1.losses.mean_squared_error(labels, features["x"] * 0 + w, reduction=reduction)
        train_op = train(loss, w) if mode == "train" else None
        metrics = {"label": v1.metrics.mean(labels)}
        return trainer.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)

    return model_fn


def minimize(loss: Any, w: Any) -> Any:
    return v1.train.GradientDescentOptimizer(RATE).minimize(loss, v1.train.get_global_step())


def make_estimator(model_dir: Path, model_fn: Any, strategy: Any = None) -> trainer.Estimator:
    config = trainer.RunConfig(
        model_dir=str(model_dir),
        train_distribute=strategy or two_replicas(),
        eval_distribute=strategy or two_replicas(),
        save_summary_steps=1,
    )
    return trainer.Estimator(model_fn, config=config)


@pytest.mark.slow
@pytest.mark.on_pjrt_too
def test_replicas_average_their_gradients_and_losses(tmp_path: Path) -> None:
    estimator = make_estimator(tmp_path, build_model_fn(minimize))
    with tpuserve.emulated_tpu(cores=2):
        estimator.train(labels_of_two_replicas, steps=2)
    # The mean of the gradients 2 (w - 1) and 2 (w - 3) is 2 (w - 2): w becomes 1 and then 1.5.
    assert estimator.get_variable_value("w") == 1.5
    assert estimator.get_variable_value("global_step") == 2
    # The losses are (w - 1)^2 and (w - 3)^2, with w = 0 and w = 1.
    assert programs.scalars(tmp_path)["loss"] == {1: 5.0, 2: 2.0}


def test_one_replica_evaluates_the_batches_of_all(tmp_path: Path) -> None:
    estimator = make_estimator(tmp_path, build_model_fn(minimize))
    results = estimator.evaluate(labels_of_two_replicas, steps=1)
    assert results == {"label": 2.0, "loss": 5.0, "global_step": 0}


@pytest.mark.slow
@pytest.mark.on_pjrt_too
def test_replicas_sum_what_the_loss_or_the_program_does_not_average(tmp_path: Path) -> None:
    def apply(loss: Any, w: Any) -> Any:
        optimizer = v1.train.GradientDescentOptimizer(RATE)
        return optimizer.apply_gradients(
            [(tf.gradients(loss, w)[0], w)], v1.train.get_global_step()
        )

    # The sum of the gradients is 4 (w - 2), and w becomes 2.
    summed = v1.losses.Reduction.SUM
    by_loss = make_estimator(tmp_path / "loss", build_model_fn(minimize, summed))
    by_program = make_estimator(tmp_path / "program", build_model_fn(apply))
    with tpuserve.emulated_tpu(cores=2):
        by_loss.train(lambda: labels_of_two_replicas(1), steps=2)
        by_program.train(labels_of_two_replicas, steps=2)
    for estimator in (by_loss, by_program):
        assert estimator.get_variable_value("w") == 2.0
        scalars = programs.scalars(Path(estimator.model_dir))
        assert scalars["loss"] == {1: 10.0, 2: 2.0}


@pytest.mark.slow
@pytest.mark.on_pjrt_too
def test_model_fn_finds_a_strategy_of_the_replicas(tmp_path: Path) -> None:
    found = []

    def train(loss: Any, w: Any) -> Any:
        context = tf.distribute.get_replica_context()
        found.append((context.num_replicas_in_sync, tf.distribute.get_strategy().extended))
        total = v1.get_variable("total", [], initializer=v1.zeros_initializer())
        # Each replica counts from a number of its own: the variable is the mean, 0.5.
        mean = v1.get_variable(
            "mean",
            [],
            trainable=False,
            initializer=v1.zeros_initializer(),
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.MEAN,
        )
        replica = tf.cast(context.replica_id_in_sync_group, tf.float32)
        changes = [
            total.assign(context.all_reduce("sum", loss)),
            mean.assign_add(replica),
            v1.train.get_global_step().assign_add(1),
        ]
        return tf.group(*changes)

    estimator = make_estimator(tmp_path, build_model_fn(train))
    with tpuserve.emulated_tpu(cores=2):
        estimator.train(labels_of_two_replicas, steps=1)
    assert [replicas for replicas, _ in found] == [2]
    assert estimator.get_variable_value("total") == 10.0
    assert estimator.get_variable_value("mean") == 0.5


@pytest.mark.slow
def test_smaller_batches_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    labels = tf.data.Dataset.from_tensor_slices

    def input_fn(input_context: Any) -> Any:
        assert input_context.num_replicas_in_sync == 2
        dataset = labels([1.0, 1.0, 3.0, 3.0, 9.0]).map(lambda label: ({"x": label}, label))
        return dataset.batch(2)

    estimator = make_estimator(tmp_path, build_model_fn(minimize))
    with tpuserve.emulated_tpu(cores=2), caplog.at_level("INFO", "tensorflow.trainer"):
        estimator.train(input_fn)
    assert estimator.get_variable_value("w") == 1.0
    assert "batches of input_fn with fewer than 2 rows are left out" in caplog.text
    assert "train with MirroredStrategy on 2 emulated TPU cores on 1 host" in caplog.text


def test_input_that_replicas_cannot_share_is_refused(tmp_path: Path) -> None:
    estimator = make_estimator(tmp_path, build_model_fn(minimize))

    with (
        tpuserve.emulated_tpu(cores=2),
        pytest.raises(InvalidSetting, match=r"Return a tf\.data\.Dataset"),
    ):
        estimator.train(lambda: (tf.ones([2]), tf.ones([2])), steps=1)


def test_strategy_that_wants_devices_that_are_not_there_is_refused(tmp_path: Path) -> None:
    estimator = make_estimator(tmp_path, build_model_fn(minimize))
    with pytest.raises(
        InvalidSetting,
        match=r"a MirroredStrategy of 2 replicas, which run on PJRT devices, and this process "
        r"uses none\. Set TPUSERVE_TPU_RUNTIME=pjrt, .*device_count=2; or leave it out",
    ):
        estimator.train(labels_of_two_replicas, steps=1)
    with (
        tpuserve.emulated_tpu(cores=1),
        pytest.raises(InvalidSetting, match="1 process has emulated TPU of 1 core, .*Name as many"),
    ):
        estimator.train(labels_of_two_replicas, steps=1)


def test_workers_that_cannot_train_together_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = {"worker": ["localhost:4000", "localhost:4001"]}
    described = {"cluster": cluster, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(described))
    with tf.Graph().as_default():
        strategy = v1.distribute.experimental.MultiWorkerMirroredStrategy()
    estimator = make_estimator(tmp_path, build_model_fn(minimize), strategy)
    with pytest.raises(InvalidSetting, match="Strategy.* from eager mode, .*Call .*disable_eager"):
        estimator.train(labels_of_two_replicas, steps=1)
    with tf.Graph().as_default(), pytest.raises(InvalidSetting, match="device_count=1; or leave"):
        estimator.train(labels_of_two_replicas, steps=1)


@pytest.mark.slow
@pytest.mark.on_pjrt_too
def test_replicas_take_no_more_devices_than_the_strategy_has(tmp_path: Path) -> None:
    estimator = make_estimator(tmp_path, build_model_fn(minimize))
    with tpuserve.emulated_tpu(cores=4):
        estimator.train(labels_of_two_replicas, steps=1)
    assert estimator.get_variable_value("w") == 1.0


@pytest.mark.slow
@pytest.mark.on_pjrt_too
def test_a_metric_of_the_training_counts_the_rows_of_all_replicas(tmp_path: Path) -> None:
    def train(loss: Any, w: Any) -> Any:
        with tf.control_dependencies([v1.metrics.mean(tf.ones([2]), name="rows")[1]]):
            return minimize(loss, w)

    values = []

    class ReadHook(tf.compat.v1.train.SessionRunHook):
        def end(self, session: Any) -> None:
            (count,) = [v for v in v1.local_variables() if v.op.name.endswith("rows/count")]
            values.append(session.run(count))

    estimator = make_estimator(tmp_path, build_model_fn(train))
    with tpuserve.emulated_tpu(cores=2):
        estimator.train(labels_of_two_replicas, steps=2, hooks=[ReadHook()])
    # Two replicas of two rows, in two steps.
    assert values == [8]


@pytest.mark.slow
@pytest.mark.on_pjrt_too
@pytest.mark.parametrize("repeat", [True, False])
def test_input_without_full_batches_is_refused(repeat: bool, tmp_path: Path) -> None:
    def input_fn() -> Any:
        rows = tf.data.Dataset.from_tensor_slices(({"x": [1.0] * 3}, [1.0] * 3)).batch(8)
        return rows.repeat() if repeat else rows

    estimator = make_estimator(tmp_path, build_model_fn(minimize))
    with (
        tpuserve.emulated_tpu(cores=2),
        pytest.raises(tf.errors.InvalidArgumentError, match=r"fewer rows than its size, 8, and"),
    ):
        estimator.train(input_fn, steps=1)


def test_a_sum_of_a_dtype_that_devices_cannot_sum_is_refused(tmp_path: Path) -> None:
    def train(loss: Any, w: Any) -> Any:
        tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1, tf.int64))

    estimator = make_estimator(tmp_path, build_model_fn(train))
    with (
        tpuserve.emulated_tpu(cores=2),
        pytest.raises(InvalidSetting, match=r"of int64 over the replicas of train_distribute"),
    ):
        estimator.train(labels_of_two_replicas, steps=1)
