from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import while_v2
from tensorflow.python.tpu import tpu
from tensorflow.python.tpu.ops import tpu_ops

from tests.tpuserve.lowering import replicas
from tpuserve.errors import LoweringError
from tpuserve.graph import row_sharding
from tpuserve.lowering.ir import outlining
from tpuserve.lowering.live_graph import lower_in_place

v1 = tf.compat.v1

both = pytest.mark.parametrize("compiled", [True, False])


@both
def test_sum_over_all_replicas_reaches_every_replica(compiled: bool) -> None:
    results, _ = replicas.run_replicas(
        lambda x: v1.tpu.cross_replica_sum(x * 2.0), [[1.0], [10.0], [100.0]], compiled=compiled
    )
    assert results == [222.0, 222.0, 222.0]


def test_sum_over_groups_stays_within_each_group() -> None:
    results, _ = replicas.run_replicas(
        lambda x: v1.tpu.cross_replica_sum(x, [[0, 2], [1, 3]]), [[1.0], [10.0], [100.0], [1000.0]]
    )
    assert results == [101.0, 1010.0, 101.0, 1010.0]


@pytest.mark.parametrize("groups", [[[0, 1]], [[0, 1], [1, 2]], [[0, 1], [2, 3]]])
def test_groups_that_do_not_have_each_replica_once_are_refused(groups: list[list[int]]) -> None:
    with pytest.raises(LoweringError, match="each of the replicas 0 to 2 once"):
        replicas.run_replicas(
            lambda x: v1.tpu.cross_replica_sum(x, groups), [[1.0], [10.0], [100.0]]
        )


def test_all_to_all_gives_each_replica_its_slice_of_every_tensor() -> None:
    def computation(x: Any) -> Any:
        return tpu_ops.all_to_all(
            x, concat_dimension=0, split_dimension=0, split_count=2, group_assignment=[[0, 1]]
        )

    results, _ = replicas.run_replicas(computation, [[[1.0, 2.0]], [[3.0, 4.0]]])
    np.testing.assert_array_equal(results, [[1.0, 3.0], [2.0, 4.0]])


def test_permute_moves_values_and_leaves_zeros() -> None:
    results, _ = replicas.run_replicas(
        lambda x: tpu_ops.collective_permute(x, [[0, 1], [1, 2]]), [[1.0], [2.0], [3.0]]
    )
    assert results == [0.0, 1.0, 2.0]


@both
def test_update_that_differs_runs_once_with_replica_0s_value(compiled: bool) -> None:
    def computation(x: Any) -> Any:
        v = replicas.variable(value=1.0)
        before = v.read_value()
        with tf.control_dependencies([v.assign_add(x, read_value=False)]):
            return before + x

    results, variables = replicas.run_replicas(computation, [[10.0], [20.0]], compiled=compiled)
    assert results == [11.0, 21.0]
    assert variables == {"v": 11.0}


@both
def test_update_of_a_variable_with_divided_rows_runs_on_each_replica(compiled: bool) -> None:
    def computation(row: Any) -> Any:
        v = v1.get_variable("v", [3], initializer=v1.zeros_initializer())
        update = tf.raw_ops.ResourceScatterUpdate(
            resource=v.handle, indices=[row], updates=[tf.cast(row + 1, tf.float32)]
        )
        update._set_attr(row_sharding.ATTRIBUTE, v1.AttrValue(s=row_sharding.DIV.encode()))
        with tf.control_dependencies([update]):
            return tf.identity(row)

    _, variables = replicas.run_replicas(computation, [[0], [1], [2]], compiled=compiled)
    assert variables["v"].tolist() == [1.0, 2.0, 3.0]


@both
def test_read_after_an_update_sees_the_update_on_every_replica(compiled: bool) -> None:
    def computation(x: Any) -> Any:
        v = replicas.variable(value=1.0)
        with tf.control_dependencies([v.assign_add(5.0, read_value=False)]):
            return v.read_value() * x

    results, variables = replicas.run_replicas(computation, [[1.0], [2.0]], compiled=compiled)
    assert results == [6.0, 12.0]
    assert variables == {"v": 6.0}


@both
def test_every_replica_reads_a_variable_before_its_update(compiled: bool) -> None:
    def computation(x: Any) -> Any:
        v = replicas.variable(value=0.0)
        gradient = v1.tpu.cross_replica_sum(v.read_value() + x)
        update = v.assign_add(gradient, read_value=False)
        with tf.control_dependencies([update]):
            return tf.identity(gradient)

    # In each run g = 4 v + (1 + 2 + 3 + 4) and v += g: v is 10 and then 60, g is 10 and then 50.
    results, variables = replicas.run_replicas(
        computation, [[1.0], [2.0], [3.0], [4.0]], compiled=compiled, times=2
    )
    assert results == [50.0] * 4
    assert variables == {"v": 60.0}


def test_xla_knows_shapes_from_variables_and_other_clusters() -> None:
    def computation(x: Any) -> Any:
        v = v1.get_variable("v", [2, 3], initializer=v1.ones_initializer())
        flat = tf.reshape(x, [-1])
        total = v1.tpu.cross_replica_sum(flat)
        # XLA must see where the target shapes come from, although they are computed outside of the
        # cluster that reshapes: one from a variable, one also from x.
        return tf.reshape(total, tf.shape(v)) + tf.reshape(flat, tf.shape(v) + tf.shape(x) - [3, 2])

    results, _ = replicas.run_replicas(computation, [[np.ones([3, 2])], [np.ones([3, 2])]])
    np.testing.assert_array_equal(results[0], np.full([2, 3], 3.0))


def test_seeded_random_ops_differ_between_replicas_and_repeat_in_a_new_run() -> None:
    def computation(x: Any) -> Any:
        return tf.random.uniform([], seed=7) + x

    first, _ = replicas.run_replicas(computation, [[0.0], [0.0]], compiled=False)
    again, _ = replicas.run_replicas(computation, [[0.0], [0.0]], compiled=False)
    assert first[0] != first[1]
    assert first == again


@both
def test_outside_compilation_runs_for_each_replica_between_compiled_clusters(
    compiled: bool,
) -> None:
    values: list[float] = []

    def note(x: Any) -> Any:
        values.append(float(x))
        return x + np.float32(100.0)

    def computation(x: Any) -> Any:
        on_host = v1.tpu.outside_compilation(
            lambda y: tf.compat.v1.py_func(note, [y], tf.float32), x * 2.0
        )
        return tf.ensure_shape(on_host, []) + 1.0

    results, _ = replicas.run_replicas(computation, [[1.0], [2.0]], compiled=compiled)
    assert results == [103.0, 105.0]
    assert sorted(values) == [2.0, 4.0]


@both
def test_replicas_communicate_inside_of_branches_and_loops(compiled: bool) -> None:
    def computation(x: Any) -> Any:
        def body(count: Any, value: Any) -> Any:
            summed = tf.cond(
                tf.equal(count % 2, 0),
                lambda: v1.tpu.cross_replica_sum(value),
                lambda: value + 1.0,
            )
            return count + 1, summed

        return while_v2.while_loop(
            lambda count, value: count < 3, body, [tf.constant(0), x], return_same_structure=True
        )[1]

    # The values on the replicas are (1, 2); the sum makes (3, 3), adding 1 makes (4, 4), and the
    # second sum makes (8, 8).
    results, _ = replicas.run_replicas(computation, [[1.0], [2.0]], compiled=compiled)
    assert results == [8.0, 8.0]


def test_branch_with_a_collective_is_refused_if_replicas_may_disagree() -> None:
    def computation(x: Any) -> Any:
        return tf.cond(x > 1.5, lambda: v1.tpu.cross_replica_sum(x), lambda: x)

    with control_flow_v2(), pytest.raises(LoweringError, match="replicas may disagree"):
        replicas.run_replicas(computation, [[1.0], [2.0]])


def control_flow_v2() -> Any:
    from tensorflow.python.ops import control_flow_util

    patch = pytest.MonkeyPatch()
    patch.setattr(control_flow_util, "ENABLE_CONTROL_FLOW_V2", True)
    return patch.context()


def test_each_core_has_its_own_infeed_and_outfeed_queue() -> None:
    def computation() -> Any:
        def body(iteration: Any) -> Any:
            (x,) = tpu_ops.infeed_dequeue_tuple([tf.float32], [[2]])
            outfeed = tpu_ops.outfeed_enqueue_tuple([x * 10.0])
            with tf.control_dependencies([outfeed]):
                return iteration + 1

        return while_v2.while_loop(
            lambda iteration: iteration < 2, body, [tf.constant(0)], return_same_structure=False
        )

    with tf.Graph().as_default():
        _, outputs = tpu.split_compile_and_replicate(computation, [[], []])
        batch = v1.placeholder(tf.float32, [2])
        feeds = [
            tpu_ops.infeed_enqueue_tuple([batch], [[2]], device_ordinal=core) for core in (0, 1)
        ]
        received = [
            tpu_ops.outfeed_dequeue_tuple([tf.float32], [[2]], device_ordinal=core)[0]
            for core in (0, 1)
        ]
        lowered = lower_in_place([outputs[0][0], *feeds, *received])
        loop, *rest = lowered.targets
        assert [target.shape.as_list() for target in rest[2:]] == [[2], [2]]
        with v1.Session(config=replicas.config()) as session:
            for core, value in ((0, 1.0), (0, 2.0), (1, 3.0), (1, 4.0)):
                session.run(rest[core], {batch: [value, value]})
            session.run(loop)
            first = session.run(rest[2:])
            second = session.run(rest[2:])
            session.run(lowered.end_infeeds)
            with pytest.raises(tf.errors.OutOfRangeError, match="emulated_tpu/infeed"):
                session.run(loop)
    np.testing.assert_array_equal(first, [[10.0, 10.0], [30.0, 30.0]])
    np.testing.assert_array_equal(second, [[20.0, 20.0], [40.0, 40.0]])


def test_op_that_xla_cannot_compile_is_refused_by_name_only_when_compiled() -> None:
    def computation(x: Any) -> Any:
        return tf.strings.to_number(tf.strings.as_string(x, name="spelled"))

    with pytest.raises(tf.errors.InvalidArgumentError, match="AsString"):
        replicas.run_replicas(computation, [[1.5], [2.5]])
    results, _ = replicas.run_replicas(computation, [[1.5], [2.5]], compiled=False)
    assert results == [1.5, 2.5]


@both
def test_function_updates_once_and_gives_each_replica_its_own_result(compiled: bool) -> None:
    @tf.function
    def use_and_update(v: Any, x: Any) -> Any:
        before = v.read_value()
        v.assign(v1.tpu.cross_replica_sum(x))
        return x * before + v.read_value()

    # The results are x * before + (1 + 10): 1 * 2 + 11 and 10 * 2 + 11.
    results, variables = replicas.run_replicas(
        lambda x: use_and_update(replicas.variable(value=2.0), x),
        [[1.0], [10.0]],
        compiled=compiled,
    )
    assert results == [13.0, 31.0]
    assert variables == {"v": 11.0}


@both
def test_branches_and_loops_update_once_and_give_each_replica_its_own_result(
    compiled: bool,
) -> None:
    @tf.function
    def count_to_two(v: Any, x: Any) -> Any:
        for _ in tf.range(3):
            if v < 2.0:
                v.assign_add(1.0)
            x = x + v
        return x

    # v is 1, 2 and 2 after each iteration.
    results, variables = replicas.run_replicas(
        lambda x: count_to_two(replicas.variable(), x), [[1.0], [10.0]], compiled=compiled
    )
    assert results == [6.0, 15.0]
    assert variables == {"v": 2.0}


def test_update_on_which_replicas_disagree_is_refused_if_its_result_is_used() -> None:
    def computation(x: Any) -> Any:
        v = replicas.variable()

        def update() -> Any:
            with tf.control_dependencies([v.assign_add(1.0, read_value=False)]):
                return x * 2.0

        return tf.cond(x > 1.5, update, lambda: x)

    with control_flow_v2(), pytest.raises(LoweringError, match="updates a variable and gives"):
        replicas.run_replicas(computation, [[1.0], [2.0]])


def test_loop_with_a_collective_is_refused_if_replicas_may_disagree() -> None:
    def computation(x: Any) -> Any:
        return tf.while_loop(lambda y: y < 10.0, lambda y: v1.tpu.cross_replica_sum(y), [x])

    with control_flow_v2(), pytest.raises(LoweringError, match="replicas may disagree"):
        replicas.run_replicas(computation, [[1.0], [20.0]])


@both
def test_gradients_of_a_function_with_a_collective(compiled: bool) -> None:
    @tf.function
    def loss(x: Any, weight: Any) -> Any:
        return v1.tpu.cross_replica_sum(x * weight * weight)

    def computation(x: Any) -> Any:
        weight = replicas.variable(value=2.0).read_value()
        return tf.gradients(loss(x, weight), [weight])[0]

    # The loss is on both replicas, and both contribute to the gradient: 2 * (2 * weight * x).
    results, _ = replicas.run_replicas(computation, [[1.0], [10.0]], compiled=compiled)
    assert results == [8.0, 80.0]


@both
def test_replicas_communicate_in_one_of_several_branches(compiled: bool) -> None:
    def computation(x: Any) -> Any:
        which = tf.cast(replicas.variable(value=1.0), tf.int32)
        return tf.switch_case(
            which, [lambda: x, lambda: v1.tpu.cross_replica_sum(x), lambda: x * 3.0]
        )

    with control_flow_v2():
        results, _ = replicas.run_replicas(computation, [[1.0], [10.0]], compiled=compiled)
    assert results == [11.0, 11.0]


@both
def test_replica_id_differs_between_replicas(compiled: bool) -> None:
    from tensorflow.compiler.tf2xla.python import xla

    def computation(x: Any) -> Any:
        own = tf.scatter_nd([[xla.replica_id()]], [x], [3])
        return v1.tpu.cross_replica_sum(own)

    results, _ = replicas.run_replicas(computation, [[1.0], [10.0], [100.0]], compiled=compiled)
    np.testing.assert_array_equal(results, [[1.0, 10.0, 100.0]] * 3)


@both
def test_generator_gives_all_replicas_equal_numbers_and_advances_once(compiled: bool) -> None:
    def computation(x: Any) -> Any:
        with tf.init_scope():
            generator = tf.random.Generator.from_state([0, 0, 0], alg="philox")
        return generator.uniform([]) + x

    results, variables = replicas.run_replicas(
        computation, [[0.0], [0.0], [0.0]], compiled=compiled
    )
    assert results[0] == results[1] == results[2]
    (state,) = variables.values()
    # Philox's counter advances by 256 in each call.
    np.testing.assert_array_equal(state, [256, 0, 0])


def test_two_parts_of_one_graph_can_be_lowered_one_after_the_other() -> None:
    with tf.Graph().as_default():
        targets = []
        for value in (1.0, 2.0):
            _, outputs = tpu.split_compile_and_replicate(
                lambda x: while_v2.while_loop(
                    lambda count, x: count < 2,
                    lambda count, x: (count + 1, v1.tpu.cross_replica_sum(x)),
                    [tf.constant(0), x],
                    return_same_structure=True,
                )[1],
                [[tf.constant(value)]] * 2,
            )
            targets += lower_in_place([outputs[0][0]]).targets
        with v1.Session(config=replicas.config()) as session:
            assert session.run(targets) == [4.0, 8.0]


def test_uncompiled_function_that_takes_variables_is_not_inlined() -> None:
    from tensorflow.core.framework.function_pb2 import FunctionDef

    touching, other = FunctionDef(), FunctionDef()
    touching.signature.input_arg.add(name="handle", type=tf.resource.as_datatype_enum)
    other.signature.input_arg.add(name="x", type=tf.float32.as_datatype_enum)
    calls = [
        outlining.make_call("f", function, must_compile=False) for function in (touching, other)
    ]
    assert [outlining.INLINE in call.attr for call in calls] == [False, True]
    assert touching.attr[outlining.NOT_INLINE].b
