"""A variable whose rows are divided among the replicas: each device holds its rows only."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.pjrt_devices import pjrt_devices
from tests.tpuserve.pjrt.tpu_programs import REPLICAS, build_program, make_step, send, v1, variable
from tpuserve.errors import UnsupportedOnTpu
from tpuserve.graph import row_sharding
from tpuserve.graph.row_sharding import DIV, MOD, RowSharding
from tpuserve.pjrt import row_shards
from tpuserve.pjrt.executable_cache import ExecutableCache
from tpuserve.pjrt.replica_step import ReplicaStep
from tpuserve.pjrt.step_program import StepProgram
from tpuserve.stablehlo.abstract_tensor import sizes_of

pytest.importorskip("jax")

# The last replica owns fewer rows than the others.
ROWS, DIM = 10, 2
IDS = [3, 9, 0, 4]

both_strategies = pytest.mark.parametrize("strategy", [DIV, MOD])


@pytest.fixture(scope="module")
def devices() -> Iterator[tuple[Any, ...]]:
    with pjrt_devices(REPLICAS) as cpu_devices:
        yield cpu_devices


def divided_variable(name: str, strategy: str, rows: int = ROWS, dim: int = DIM) -> Any:
    """The handle of a variable [rows, dim] whose rows are divided."""
    handle = variable(name, (rows, dim)).handle
    handle.op._set_attr(row_sharding.ATTRIBUTE, tf.compat.v1.AttrValue(s=strategy.encode()))
    return handle


def update(strategy: str, rows: int = ROWS, dim: int = DIM) -> Any:
    """A step that doubles rows of "table", and sends and stores in "last" what they were.

    A batch is the number of the replica and the numbers of the rows, the same on all replicas.
    """
    sharding = RowSharding(strategy, rows, REPLICAS)

    def step(batch: Any, iteration: Any) -> Any:
        table, last = (divided_variable(name, strategy, rows, dim) for name in ("table", "last"))
        replica, ids = tf.cast(batch[0], tf.int32), tf.cast(batch[1:], tf.int32)
        is_own = tf.equal(sharding.owner(ids), replica)[:, None]
        # A gather of a row of another replica gives some row, which the replica does not use.
        own = tf.raw_ops.ResourceGather(resource=table, indices=ids, dtype=tf.float32)
        values = v1.tpu.cross_replica_sum(tf.where(is_own, own, tf.zeros_like(own)))
        changes = {"indices": ids, "updates": values}
        with tf.control_dependencies([send(values)]):
            return tf.group(
                tf.raw_ops.ResourceScatterAdd(resource=table, **changes),
                tf.raw_ops.ResourceScatterUpdate(resource=last, **changes),
            )

    return step


def make_program(step: ReplicaStep, devices: Any, **options: Any) -> tuple[StepProgram, Any]:
    """A program, and the initial value of each of its variables: 0, 1, 2, ..."""
    program = StepProgram(step, devices, **options)
    values = []
    for index, spec in enumerate(step.variables):
        shape = sizes_of(spec.shape)
        values.append(np.arange(np.prod(shape), dtype=np.float32).reshape(shape))
        program.set_variable(index, values[-1])
    return program, values


def dispatch(program: StepProgram, ids: list[int], count: int = 1) -> Any:
    (feed,) = program.step.feeds
    step = [[np.array([r, *ids], feed.dtype.as_numpy_dtype)] for r in range(REPLICAS)]
    batches = program.put_batches([step] * count, count)
    return program.dispatch(batches, count, seed=0, step=0, done=0, iterations=count)


@both_strategies
def test_rows_are_found_and_changed_by_their_owners(strategy: str, devices: Any) -> None:
    step = make_step(update(strategy), (1 + len(IDS),))
    program, (table, last) = make_program(step, devices)
    names = [variable.name for variable in step.variables]
    assert names == ["table", "last"]
    dispatched = dispatch(program, IDS, 3)
    rows = np.asarray(dispatched.results[0])
    for replica in range(REPLICAS):
        for number in range(3):
            np.testing.assert_array_equal(rows[replica, number], table[IDS] * 2**number)
    table[IDS] *= 8
    # The last step has stored what it has found: the rows after two steps.
    last[IDS] = table[IDS] / 2
    for value, expected in zip(program.get_variables([0, 1]), (table, last), strict=True):
        np.testing.assert_array_equal(value, expected)


@both_strategies
def test_each_device_holds_its_rows_and_padding(strategy: str, devices: Any) -> None:
    step = make_step(update(strategy), (1 + len(IDS),))
    program, (table, _) = make_program(step, devices)
    for _ in range(2):
        shards = list(program.get_shards(0))
        sharding = step.row_shardings[0]
        assert sharding == RowSharding(strategy, ROWS, REPLICAS)
        assert [shard.shape for shard in shards] == [(3, DIM)] * REPLICAS
        for replica, shard in enumerate(shards):
            rows = list(sharding.rows_of(replica))
            np.testing.assert_array_equal(shard[: len(rows)], table[rows])
            np.testing.assert_array_equal(shard[len(rows) :], np.zeros((3 - len(rows), DIM)))
        dispatch(program, IDS)
        table[IDS] *= 2


class RecordingCache(ExecutableCache):
    """Keeps the last executable."""

    def __init__(self) -> None:
        super().__init__(None)
        self.executable: Any = None

    def store(self, key: str, compiled: Any) -> None:
        self.executable = compiled


@both_strategies
def test_no_device_ever_has_memory_for_all_rows(strategy: str, devices: Any) -> None:
    rows, dim = 4096, 64
    cache = RecordingCache()
    step = make_step(update(strategy, rows, dim), (1 + len(IDS),))
    program, _ = make_program(step, devices, cache=cache, checked=[0])
    dispatch(program, IDS, 4)
    memory, part = cache.executable.memory_analysis(), rows * dim * 4 // REPLICAS
    # Two variables, which are updated in place, and some bytes for the batches and the results.
    assert memory.argument_size_in_bytes < 2.1 * part
    assert memory.alias_size_in_bytes == 2 * part
    # XLA does not copy the rows. The check for finite values has a byte for each float.
    assert memory.temp_size_in_bytes < part // 4 + 1024
    text = cache.executable.as_text()
    assert "all-gather" not in text
    assert not re.search(rf"\[{rows},", text)


@both_strategies
def test_rows_with_nan_on_one_device_are_reported_and_padding_is_not(
    strategy: str, devices: Any
) -> None:
    step = make_step(update(strategy), (1 + len(IDS),))
    program, (table, _) = make_program(step, devices, checked=[0, 1])
    assert np.asarray(dispatch(program, IDS).is_finite).tolist() == [True, True]
    table[8] = np.nan
    program.set_variable(0, table)
    assert np.asarray(dispatch(program, [1, 2, 3, 4]).is_finite).tolist() == [False, True]


@pytest.mark.parametrize(
    ("op", "use"),
    [
        (
            "ReadVariableOp",
            lambda table: tf.raw_ops.ReadVariableOp(resource=table, dtype=tf.float32),
        ),
        (
            "ResourceScatterSub",
            lambda table: tf.raw_ops.ResourceScatterSub(
                resource=table, indices=[0], updates=[[1.0, 1]]
            ),
        ),
        (
            "StatefulPartitionedCall",
            lambda table: tf.function(
                lambda: tf.raw_ops.ResourceGather(resource=table, indices=[1], dtype=tf.float32),
                autograph=False,
            )(),
        ),
    ],
)
def test_use_of_a_divided_variable_without_its_rows_is_refused_with_its_line(
    op: str, use: Any
) -> None:
    graph = build_program(lambda batch, iteration: tf.group(use(divided_variable("table", DIV))))
    with pytest.raises(
        UnsupportedOnTpu, match=rf"{op}.*model.py:12.*, uses a variable whose rows are divided"
    ):
        ReplicaStep(graph, lambda node: f"model.py:12 {node}")


@both_strategies
@pytest.mark.parametrize("rows", [4, 7, 8])
def test_shards_make_the_whole_variable_again(strategy: str, rows: int) -> None:
    sharding = RowSharding(strategy, rows, 4)
    value = np.arange(rows * 3).reshape(rows, 3)
    joined = np.zeros_like(value)
    for replica in range(4):
        shard = row_shards.take_shard(value, sharding, replica)
        assert shard.shape == (sharding.rows_per_replica, 3)
        row_shards.put_shard(joined, sharding, replica, shard)
    np.testing.assert_array_equal(joined, value)
