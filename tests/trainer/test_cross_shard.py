from typing import Any

import pytest
import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.cross_shard import CrossShardOptimizer

pytestmark = pytest.mark.slow
v1 = tf.compat.v1


def gradient_step() -> tuple[Any, Any]:
    w = v1.get_variable("w", initializer=1.0, use_resource=True)
    optimizer = CrossShardOptimizer(v1.train.MomentumOptimizer(0.5, 0.9))
    return w, optimizer.minimize(w * 4.0, var_list=[w])


def test_off_the_tpu_it_is_the_wrapped_optimizer_and_adds_no_tpu_op() -> None:
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


def test_slots_are_those_of_the_wrapped_optimizer() -> None:
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=1.0, use_resource=True)
        optimizer = CrossShardOptimizer(v1.train.MomentumOptimizer(0.5, 0.9))
        optimizer.minimize(w * 4.0, var_list=[w])
        assert optimizer.get_slot_names() == ["momentum"]
        assert optimizer.get_slot(w, "momentum").name == "w/Momentum:0"
        assert [each.name for each in optimizer.variables()] == ["w/Momentum:0"]


def test_other_reductions_and_keras_optimizers_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="reduction is 'none'"):
        CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.1), reduction="none")
    with pytest.raises(InvalidSetting, match="no tf.compat.v1.train.Optimizer"):
        CrossShardOptimizer("sgd")
