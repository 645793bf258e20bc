from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.tpu import tpu

from tests.tpuserve.lowering import replicas
from tpuserve.errors import UnsupportedOnTpu
from tpuserve.lowering.func_graph import build_and_lower, is_lowered

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def graph() -> Iterator[Any]:
    with tf.Graph().as_default() as graph, v1.variable_scope("", use_resource=True):
        yield graph


def lower_computation(computation: Callable[..., Any], *inputs: Any) -> Any:
    """Return the results of a computation of one replica."""
    _, outputs = build_and_lower(
        lambda: tpu.split_compile_and_replicate(computation, [list(inputs)])
    )
    return outputs[0]


def run_fetches(*fetches: Any) -> Any:
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        return session.run(fetches)


def test_computation_is_built_with_tpu_ops_and_leaves_none_in_the_graph(graph: Any) -> None:
    op_types: list[str] = []

    def build() -> Any:
        outputs = tpu.split_compile_and_replicate(lambda x: x * 2.0, [[1.0], [2.0]])
        op_types.extend(operation.type for operation in v1.get_default_graph().get_operations())
        return outputs

    _, outputs = build_and_lower(build)
    assert {"TPUReplicateMetadata", "TPUReplicatedInput", "TPUReplicatedOutput"} <= {*op_types}
    assert not [op for op in graph.get_operations() if op.type.startswith("TPU")]
    assert run_fetches(outputs) == ([[2.0], [4.0]],)
    assert is_lowered(graph)


def test_results_have_the_names_and_shapes_that_they_have_on_a_tpu() -> None:
    place = v1.placeholder(tf.float32, [None, 3])
    with v1.name_scope("net"):
        first, second = lower_computation(lambda x: (x + 1.0, tf.reduce_sum(x)), place)
    assert (first.name, first.shape.as_list()) == ("net/output_0_shard_0:0", [None, 3])
    assert (second.name, second.shape) == ("net/output_1_shard_0:0", [])


def test_variables_of_a_computation_belong_to_the_graph(graph: Any) -> None:
    def computation() -> Any:
        step = v1.train.get_or_create_global_step()
        with v1.variable_scope("net"):
            return replicas.variable("v", 2.0) + tf.cast(step, tf.float32)

    lower_computation(computation)
    assert [variable.name for variable in v1.global_variables()] == ["global_step:0", "net/v:0"]
    assert v1.train.get_global_step() is v1.global_variables()[0]
    with v1.variable_scope("net", reuse=True):
        assert run_fetches(*lower_computation(lambda: replicas.variable("v") * 3.0)) == (6.0,)


def test_tensors_of_a_computation_are_in_no_collection_of_the_graph() -> None:
    (loss,) = lower_computation(lambda: v1.losses.mean_squared_error([1.0], [3.0]))
    assert v1.losses.get_losses() == []
    assert run_fetches(loss) == (4.0,)


def test_control_dependencies_inside_and_around_a_computation_hold() -> None:
    v = replicas.variable(value=1.0)
    update = v.assign(10.0)

    def waiting() -> Any:
        with tf.control_dependencies([update]):
            return v.read_value() * 2.0

    with tf.control_dependencies([update]):
        (around,) = lower_computation(lambda: v.read_value() * 2.0)
    (inside,) = lower_computation(waiting)
    assert run_fetches(around) == run_fetches(inside) == (20.0,)


def test_update_runs_only_if_its_result_is_fetched() -> None:
    v = replicas.variable(value=1.0)
    computed = lower_computation(lambda: (v.assign_add(5.0), tf.constant(3.0)))
    with v1.Session() as session:
        session.run(v.initializer)
        assert session.run([computed[1], v]) == [3.0, 1.0]
        assert session.run(computed[0]) == 6.0


@pytest.mark.parametrize("is_v2", [True, False])
def test_computation_may_be_in_a_loop_or_branch_of_the_host(
    is_v2: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorflow.python.ops import control_flow_util

    monkeypatch.setattr(control_flow_util, "ENABLE_CONTROL_FLOW_V2", is_v2)
    v = replicas.variable()

    def body(iteration: Any) -> Any:
        with tf.control_dependencies(
            lower_computation(lambda x: v.assign_add(x), tf.cast(iteration, tf.float32))
        ):
            return iteration + 1

    looped = v1.while_loop(lambda iteration: iteration < 4, body, [0], return_same_structure=False)
    with tf.control_dependencies([looped]):
        chosen = v1.cond(v > -1.0, lambda: lower_computation(lambda: v * 10.0)[0], lambda: v * 0.0)
    # The loop adds 0 + 1 + 2 + 3.
    assert run_fetches(chosen) == (60.0,)


def test_gradients_through_loops_inside_of_a_computation() -> None:
    v = replicas.variable(value=3.0)

    def computation() -> Any:
        _, power = v1.while_loop(
            lambda n, _: n < 3, lambda n, p: (n + 1, p * v), [0, 1.0], maximum_iterations=3
        )
        return tf.gradients(tf.cond(power > 20.0, lambda: power, lambda: power * 0.0), [v])[0]

    # v ** 3 is 27, and its gradient 3 v ** 2.
    assert run_fetches(*lower_computation(computation)) == (27.0,)


def test_gradients_requested_outside_of_the_computation_are_refused() -> None:
    v = replicas.variable(value=3.0)
    (result,) = lower_computation(lambda: v * v)
    with pytest.raises(UnsupportedOnTpu, match="'output_0_shard_0'.*Compute them inside"):
        tf.gradients(result, [v])


def test_update_of_a_reference_variable_is_refused() -> None:
    v = v1.Variable(1.0, use_resource=False)
    assert run_fetches(*lower_computation(lambda: v * 2.0)) == (2.0,)
    with pytest.raises(UnsupportedOnTpu, match="'AssignAdd'.*use_resource=True"):
        lower_computation(lambda: v1.assign_add(v, 1.0))
