from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import trainer
from tests.trainer import programs
from tpuserve.errors import InvalidSetting
from trainer.distribution.cross_shard import CrossShardOptimizer

v1 = tf.compat.v1


def gradient_step() -> tuple[Any, Any]:
    w = v1.get_variable("w", initializer=1.0, use_resource=True)
    optimizer = CrossShardOptimizer(v1.train.MomentumOptimizer(0.5, 0.9))
    return w, optimizer.minimize(w * 4.0, var_list=[w])


def test_off_the_tpu_only_the_wrapped_optimizer_works() -> None:
    with tf.Graph().as_default() as graph, v1.Session() as session:
        w, step = gradient_step()
        session.run(v1.global_variables_initializer())
        session.run(step)
        assert session.run(w) == -1.0
        assert "CrossReplicaSum" not in {op.type for op in graph.get_operations()}


def test_on_several_shards_the_mean_over_them_is_applied() -> None:
    with tf.Graph().as_default() as graph:
        v1.tpu.shard(lambda: [gradient_step()[1]], num_shards=4)
        types = [op.type for op in graph.get_operations()]
        scales = [
            tf.get_static_value(op.inputs[1])
            for op in graph.get_operations()
            if op.type == "Mul" and op.inputs[1].op.type == "Const"
        ]
    assert types.count("CrossReplicaSum") == 1
    assert 0.25 in scales


def test_the_mean_is_over_the_replicas_of_a_group() -> None:
    def step() -> list[Any]:
        w = v1.get_variable("w", initializer=1.0, use_resource=True)
        optimizer = CrossShardOptimizer(
            v1.train.GradientDescentOptimizer(0.5), group_assignment=[[0, 2], [1, 3]]
        )
        return [optimizer.minimize(w * 4.0, var_list=[w])]

    with tf.Graph().as_default() as graph:
        v1.tpu.shard(step, num_shards=4)
        (reduce,) = [op for op in graph.get_operations() if op.type == "CrossReplicaSum"]
        assert tf.get_static_value(reduce.inputs[1]).tolist() == [[0, 2], [1, 3]]
        scales = [
            tf.get_static_value(op.inputs[1])
            for op in graph.get_operations()
            if op.type == "Mul" and op.inputs[1].op.type == "Const"
        ]
    assert 0.5 in scales


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([[0], [1, 2, 3]], r"\[\[0\], \[1, 2, 3\]\], whose groups have different sizes"),
        ([0, 1, 2, 3], "Give a list of lists of replica numbers"),
        ([[0, 1], [1, 2]], "the number of replicas is 4. Name each of the replicas 0 to 3 once"),
        ([[0, 1]], "Name each of the replicas 0 to 3 once"),
    ],
)
def test_groups_that_have_no_mean_are_refused(groups: Any, message: str) -> None:
    def step() -> list[Any]:
        w = v1.get_variable("w", initializer=1.0, use_resource=True)
        descent = v1.train.GradientDescentOptimizer(0.5)
        optimizer = CrossShardOptimizer(descent, group_assignment=groups)
        return [optimizer.minimize(w * 4.0, var_list=[w])]

    with tf.Graph().as_default(), pytest.raises(InvalidSetting, match=message):
        v1.tpu.shard(step, num_shards=4)


@pytest.mark.parametrize(("makes_its_own", "warnings"), [(True, 1), (False, 0)])
def test_unscaled_gradients_are_summed_with_a_warning(
    makes_its_own: bool, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    def step() -> list[Any]:
        w = v1.get_variable("w", initializer=1.0, use_resource=True)
        optimizer = CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.5))
        loss = w * 4.0
        if not makes_its_own:
            return [optimizer.minimize(loss, var_list=[w])]
        return [optimizer.apply_gradients([(tf.gradients(loss, w)[0], w)])]

    with tf.Graph().as_default():
        v1.tpu.shard(step, num_shards=4)
    messages = [
        message for message in caplog.messages if "sums the gradients of 4 replicas" in message
    ]
    assert len(messages) == warnings


def test_slots_are_those_of_the_wrapped_optimizer() -> None:
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=1.0, use_resource=True)
        optimizer = CrossShardOptimizer(v1.train.MomentumOptimizer(0.5, 0.9))
        optimizer.minimize(w * 4.0, var_list=[w])
        assert optimizer.get_slot_names() == ["momentum"]
        assert optimizer.get_slot(w, "momentum").name == "w/Momentum:0"
        assert [variable.name for variable in optimizer.variables()] == ["w/Momentum:0"]


def test_other_reductions_and_keras_optimizers_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="reduction is 'none'"):
        CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.1), reduction="none")
    with pytest.raises(InvalidSetting, match="not a tf.compat.v1.train.Optimizer"):
        CrossShardOptimizer("sgd")


def test_a_sum_over_one_replica_is_the_tensor_itself() -> None:
    with tf.Graph().as_default() as graph, v1.Session() as session:
        assert session.run(trainer.cross_replica_sum(tf.constant([2.0]), [[0]])) == [2.0]
        assert "CrossReplicaSum" not in {op.type for op in graph.get_operations()}


def tensorflows_model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
    """Build the slope model with TensorFlow's cross_replica_sum, once inside a tf.cond."""
    w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
    y = v1.tpu.cross_replica_sum(features["x"] * w)
    y = tf.cond(tf.reduce_sum(features["x"]) > 0.0, lambda: v1.tpu.cross_replica_sum(y), lambda: -y)
    if mode == trainer.ModeKeys.PREDICT:
        return trainer.TPUEstimatorSpec(mode, predictions={"y": y})
    loss = tf.reduce_mean((y - labels) ** 2) / 2.0
    if mode == trainer.ModeKeys.EVAL:
        return trainer.TPUEstimatorSpec(mode, loss=v1.tpu.cross_replica_sum(loss))
    step = v1.train.get_global_step()
    optimizer = v1.tpu.CrossShardOptimizer(v1.train.GradientDescentOptimizer(params["rate"]))
    gradients = optimizer.compute_gradients(loss)
    train_op = tf.cond(
        step < 1000, lambda: optimizer.apply_gradients(gradients, step), lambda: tf.no_op()
    )
    return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


@pytest.mark.slow
@pytest.mark.parametrize("iterations_per_loop", [1, 4])
def test_tensorflows_own_sums_and_optimizer_work_off_the_tpu(
    tmp_path: Path, iterations_per_loop: int
) -> None:
    estimator = programs.estimator(
        tmp_path, model_fn=tensorflows_model_fn, iterations_per_loop=iterations_per_loop
    )
    estimator.train(programs.ones(), max_steps=6)
    assert estimator.get_variable_value("w") == 1 - 0.5**6
    assert estimator.evaluate(programs.ones(), steps=1)["loss"] == 0.5**12 / 2
    assert next(estimator.predict(programs.ones()))["y"] == 1 - 0.5**6
