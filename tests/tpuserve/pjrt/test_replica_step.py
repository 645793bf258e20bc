"""The step of a TPU program, run on several PJRT devices of the CPU."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.pjrt_devices import pjrt_devices
from tests.tpuserve.pjrt.tpu_programs import REPLICAS, build_program, make_step, send, v1, variable
from tpuserve.errors import DeviceMemoryExhausted, UnsupportedOnTpu
from tpuserve.pjrt.replica_step import ReplicaStep
from tpuserve.pjrt.step_program import StepProgram

pytest.importorskip("jax")


@pytest.fixture(scope="module")
def devices() -> Iterator[tuple[Any, ...]]:
    with pjrt_devices(REPLICAS) as cpu_devices:
        yield cpu_devices


def run_steps(
    step: ReplicaStep,
    devices: Any,
    count: int = 1,
    *,
    seed: int = 7,
    first: int = 0,
    earlier_steps: int = 0,
) -> tuple[list[Any], list[bool], dict[str, Any]]:
    """Run steps whose variables start at zero; a batch is filled with the number of its replica.

    Returns:
      For each result of the step an array [replicas, count, ...]; for each step whether it sends
      its results; variable name → value.
    """
    program = StepProgram(step, devices)
    for index, spec in enumerate(step.variables):
        program.set_variable(index, np.zeros(spec.shape or (), spec.dtype.as_numpy_dtype))
    (feed,) = step.feeds
    batch: Any = np.zeros(tuple(feed.shape or ()), feed.dtype.as_numpy_dtype)
    batches = program.put_batches([[[batch + r] for r in range(REPLICAS)]] * count, count)
    ran = program.dispatch(
        batches, count, seed=seed, step=first, done=earlier_steps, iterations=count
    )
    values = program.get_variables(range(len(step.variables)))
    return (
        [np.asarray(result)[:, :count] for result in ran.results],
        np.asarray(ran.is_sent)[:count].tolist(),
        {variable.name: value for variable, value in zip(step.variables, values, strict=True)},
    )


def test_sum_over_replicas_updates_the_variable_in_each_step(devices: Any) -> None:
    def step(batch: Any, iteration: Any) -> Any:
        total = v1.tpu.cross_replica_sum(tf.reduce_sum(batch))
        return variable("total").assign_add(total, read_value=False)

    replica_step = make_step(step)
    assert [feed.shape for feed in replica_step.feeds] == [(3,)]
    assert [variable.name for variable in replica_step.variables] == ["total"]
    assert replica_step.changed_variables == (0,)
    assert replica_step.iterations == "iterations:0"
    # A step adds 3 * (0 + 1 + 2 + 3).
    assert run_steps(replica_step, devices, 5)[2] == {"total": 90.0}


def test_sum_in_groups_and_in_a_branch_and_in_a_loop(devices: Any) -> None:
    def step(batch: Any, iteration: Any) -> Any:
        pairs = v1.tpu.cross_replica_sum(batch, [[0, 1], [2, 3]])
        branch = tf.cond(iteration < 5, lambda: v1.tpu.cross_replica_sum(batch), lambda: batch)
        _, loop = tf.while_loop(
            lambda count, total: count < 3,
            lambda count, total: (count + 1, total + v1.tpu.cross_replica_sum(batch)),
            [0, batch],
        )
        return send(pairs, branch, loop)

    v1.enable_control_flow_v2()
    (pairs, branch, loop), _, _ = run_steps(make_step(step), devices)
    np.testing.assert_array_equal(pairs[:, 0, 0], [1, 1, 5, 5])
    np.testing.assert_array_equal(branch[:, 0, 0], [6, 6, 6, 6])
    np.testing.assert_array_equal(loop[:, 0, 0], [18, 19, 20, 21])


def test_all_to_all_and_permute_move_rows_between_replicas(devices: Any) -> None:
    def step(batch: Any, iteration: Any) -> Any:
        exchanged = tf.raw_ops.AllToAll(
            input=batch[:, None],
            group_assignment=[[0, 1, 2, 3]],
            concat_dimension=1,
            split_dimension=0,
            split_count=4,
        )
        moved = tf.raw_ops.CollectivePermute(input=batch, source_target_pairs=[[0, 1], [1, 2]])
        return send(exchanged, moved)

    (exchanged, moved), _, _ = run_steps(make_step(step, (4,)), devices)
    np.testing.assert_array_equal(exchanged[2, 0], [[0, 1, 2, 3]])
    np.testing.assert_array_equal(moved[:, 0, 0], [0, 0, 1, 0])


def test_a_variable_of_unknown_shape_is_refused_by_its_name() -> None:
    def step(batch: Any, iteration: Any) -> Any:
        with tf.init_scope():
            shapeless = v1.Variable(
                tf.zeros([1]),
                shape=tf.TensorShape([None]),
                validate_shape=False,
                use_resource=True,
                name="shapeless",
            )
        return shapeless.assign(batch, read_value=False)

    with pytest.raises(UnsupportedOnTpu, match="variable 'shapeless' of unknown shape"):
        make_step(step)


def noise(batch: Any, iteration: Any) -> Any:
    uniform = tf.random.uniform([2], seed=3)
    return send(uniform, tf.random.normal([2], seed=3), tf.random.uniform([2], seed=3))


@pytest.mark.slow
def test_random_numbers_differ_by_seed_step_op_and_replica_and_repeat(devices: Any) -> None:
    step = make_step(noise)
    first, _, _ = run_steps(step, devices, 4)
    again, _, _ = run_steps(step, devices, 2, first=2)
    np.testing.assert_array_equal(first[0][:, 2:], again[0])
    other_seed, _, _ = run_steps(step, devices, 4, seed=8)
    # All random numbers differ: two for each of 4 replicas, 4 steps, 2 ops and 2 seeds.
    uniform = np.concatenate([first[0], first[2], other_seed[0], other_seed[2]])
    assert len(np.unique(uniform)) == 2 * 4 * 4 * 2 * 2
    assert uniform.min() >= 0
    assert uniform.max() < 1


def test_random_numbers_differ_in_each_iteration_and_call_of_a_function(devices: Any) -> None:
    @tf.function(autograph=False)
    def draw() -> Any:
        return tf.random.uniform([1], seed=3)

    def step(batch: Any, iteration: Any) -> Any:
        _, drawn = tf.while_loop(
            lambda count, drawn: count < 3,
            lambda count, drawn: (count + 1, tf.concat([drawn[1:], draw()], 0)),
            [0, tf.zeros([3])],
        )
        return send(tf.concat([drawn, draw(), draw()], 0))

    v1.enable_control_flow_v2()
    (drawn,), _, _ = run_steps(make_step(step), devices, 2)
    assert len(np.unique(drawn)) == drawn.size == 4 * 2 * 5


def test_step_that_sends_in_a_branch_says_when_it_sends(devices: Any) -> None:
    def step(batch: Any, iteration: Any) -> Any:
        def sending() -> Any:
            with tf.control_dependencies([send(batch)]):
                return tf.constant(True)

        return tf.cond(tf.equal(iteration % 3, 0), sending, lambda: tf.constant(False))

    v1.enable_control_flow_v2()
    (batch,), is_sent, _ = run_steps(make_step(step), devices, 4, earlier_steps=2)
    # The run has the steps 2 to 5 of the loop, of which only step 3 is a multiple of three.
    assert is_sent == [False, True, False, False]
    np.testing.assert_array_equal(batch[:, 1, 0], [0, 1, 2, 3])


@pytest.mark.parametrize(
    ("op", "step"),
    [
        ("AsString", lambda batch, iteration: tf.strings.as_string(batch).op),
        ("RandomShuffle", lambda batch, iteration: send(tf.random.shuffle(batch))),
        (
            "Exp",
            lambda batch, iteration: send(v1.tpu.outside_compilation(tf.exp, batch)),
        ),
        (
            "OutfeedEnqueueTuple",
            lambda batch, iteration: v1.tpu.outside_compilation(lambda: send(tf.exp(batch))),
        ),
    ],
)
def test_op_without_a_way_is_named_with_function_and_line(op: str, step: Any) -> None:
    graph = build_program(step)
    with pytest.raises(UnsupportedOnTpu, match=rf"{op}.*model.py:12"):
        ReplicaStep(graph, lambda node: f"model.py:12 {node}").export("cpu")


def test_step_is_exported_for_gpus_on_a_machine_without_one() -> None:
    graph = build_program(lambda batch, iteration: send(tf.exp(batch)))
    exported = ReplicaStep(graph, lambda node: node).export("cuda")
    assert exported.platforms == ("cuda",)


def test_graph_without_a_loop_on_replicas_is_refused() -> None:
    with pytest.raises(UnsupportedOnTpu, match="the graph has 0 loops on the replicas"):
        ReplicaStep(tf.Graph().as_graph_def())


def test_tensor_from_outside_of_the_step_is_refused_by_name() -> None:
    def step(batch: Any, iteration: Any) -> Any:
        with tf.init_scope():
            outside = v1.placeholder(tf.float32, [3], name="outside")
        return send(batch + outside)

    with pytest.raises(UnsupportedOnTpu, match="reads Placeholder 'outside', which is outside"):
        make_step(step)


def test_variable_that_no_device_has_memory_for_is_named_with_its_bytes(devices: Any) -> None:
    def step(batch: Any, iteration: Any) -> Any:
        return variable("total").assign_add(tf.reduce_sum(batch), read_value=False)

    program = StepProgram(make_step(step), devices)
    # All elements of the array share the memory of one element, so the test needs no memory.
    value = np.broadcast_to(np.float32(0), [2**46])
    with pytest.raises(DeviceMemoryExhausted, match=f"'total' of {2**48} bytes: RESOURCE_EXHAUST"):
        program.set_variable(0, value)


def test_feed_of_unknown_size_is_filled_up_to_a_power_of_two(devices: Any) -> None:
    def step(batch: Any, iteration: Any) -> Any:
        is_filling = tf.cast(tf.equal(batch, -1), tf.int32)
        return send(tf.reduce_sum(batch)[None], tf.reduce_sum(is_filling)[None])

    replica_step = make_step(step, (2, None), tf.int32)
    assert replica_step.unknown_sizes == ((0, 1),)
    program = StepProgram(replica_step, devices)
    for size, room in ((3, 4), (4, 4), (5, 8)):
        batch = np.full([2, size], 7, np.int32)
        batches = program.put_batches([[[batch]] * REPLICAS], 1, [size])
        assert batches[0].shape == (REPLICAS, 1, 2, room)
        ran = program.dispatch(batches, 1, seed=0, step=0, done=0, iterations=1)
        total, filling = (np.asarray(result)[0, 0, 0] for result in ran.results)
        assert filling == 2 * (room - size)
        assert total == 7 * 2 * size - filling
