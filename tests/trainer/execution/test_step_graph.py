"""Steps on a TPU in which model_fn leaves the step, or gives each replica a variable of its own."""

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import trainer
from tests.trainer.backends.tpu import slope
from tests.trainer.programs import variable
from tpuserve.errors import UnsupportedOnTpu

v1 = tf.compat.v1


def train(directory: Path, build: Any, steps: int = 4) -> None:
    """Train on two cores with the loss and train_op that `build` returns."""

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        loss, train_op = build(features["x"])
        return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    with slope.tpu(2, compiled=True):
        config = trainer.RunConfig(trainer.TPUConfig(2), model_dir=str(directory))
        model = trainer.TPUEstimator(model_fn, config=config, train_batch_size=4)
        model.train(slope.ones(), max_steps=steps)


@pytest.mark.slow
@pytest.mark.on_pjrt_too
def test_a_variable_may_start_from_a_tensor_that_is_made_outside_of_the_step(
    tmp_path: Path,
) -> None:
    def build(x: Any) -> Any:
        with tf.control_dependencies(None):
            zero = tf.zeros([])
        w = v1.Variable(zero, name="w")
        loss = tf.reduce_mean((x * w - 1.0) ** 2) / 2.0
        optimizer = trainer.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.5))
        return loss, optimizer.minimize(loss, v1.train.get_global_step())

    train(tmp_path, build)
    assert variable(tmp_path, "w") == 1 - 0.5**4


def add_to_own_variables(x: Any) -> Any:
    """Add, on replica r, r + 1 to a variable of its own, and the sum of both to the variable w."""
    with tf.control_dependencies(None):
        own = [v1.get_variable(f"own_{replica}", initializer=tf.zeros([])) for replica in range(2)]
        numbers = tpu_replicated_input([tf.constant(1.0), tf.constant(2.0)])
    context = v1.get_default_graph()._get_control_flow_context()
    handle = context.get_replicated_var_handle(name="own", handle_id="own", vars_=own)
    w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
    add = tf.raw_ops.AssignAddVariableOp(resource=handle, value=numbers)
    with tf.control_dependencies([add]):
        after = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
    total = v1.tpu.cross_replica_sum(after)
    step = v1.train.get_global_step()
    return tf.reduce_mean(x), tf.group(add, w.assign_add(total), step.assign_add(1))


def tpu_replicated_input(values: Any) -> Any:
    """Build the op whose output is values[r] on replica r."""
    return tf.raw_ops.TPUReplicatedInput(inputs=values)


def test_each_replica_updates_its_own_copy_of_a_variable(tmp_path: Path) -> None:
    train(tmp_path, add_to_own_variables, steps=3)
    assert variable(tmp_path, "own_0") == 3
    assert variable(tmp_path, "own_1") == 6
    # The copies of both replicas sum up to 3, 6 and 9 after the steps.
    assert variable(tmp_path, "w") == 3 + 6 + 9


@pytest.mark.slow
def test_variables_of_replicas_are_refused_on_pjrt_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jax")
    monkeypatch.setattr(slope, "tpu_kind", "pjrt")
    with pytest.raises(UnsupportedOnTpu, match="of which each replica has its own"):
        train(tmp_path, add_to_own_variables)


def test_a_spec_that_is_made_outside_of_the_step_may_have_ops_of_the_step(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        loss = tf.reduce_mean(features["x"])
        train_op = v1.train.get_global_step().assign_add(1)
        with tf.control_dependencies(None):
            assert v1.get_default_graph() is not loss.graph
            return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    with slope.tpu(2):
        config = trainer.RunConfig(trainer.TPUConfig(2), model_dir=str(tmp_path))
        trainer.TPUEstimator(model_fn, config=config, train_batch_size=4).train(
            slope.ones(), max_steps=2
        )
    assert variable(tmp_path, "global_step") == 2
