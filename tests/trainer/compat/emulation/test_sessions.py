from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu import tpu, tpu_feed, training_loop
from tensorflow.python.tpu.ops import tpu_ops

from tests.trainer.compat.emulation import own_session
from tpuserve.errors import TpuNotFound
from trainer.compat import contrib

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def emulated_tpu_graph() -> Iterator[None]:
    with own_session.emulated_tpu_graph():
        yield


def train_step(optimizer: Any, x: Any, y: Any) -> Any:
    """Train y = x w for one step; return the loss of each replica before the step."""
    w = v1.get_variable("w", [1, 1], initializer=v1.zeros_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - y))
    train_op = contrib.tpu.CrossShardOptimizer(optimizer).minimize(
        loss, v1.train.get_or_create_global_step()
    )
    with tf.control_dependencies([train_op]):
        return tf.reshape(loss, [1])


@pytest.mark.parametrize("api", [v1.tpu, contrib.tpu, tpu], ids=["v1", "contrib", "python"])
def test_computation_runs_by_every_name_of_rewrite(api: Any) -> None:
    x = v1.placeholder(tf.float32, [2])
    (output,) = api.rewrite(lambda a, x: a * x + 1.0, [3.0, x])
    started, output, stopped = own_session.run_fetches(
        api.initialize_system(), output, api.shutdown_system(), feed={x: [1.0, 2.0]}
    )
    np.testing.assert_array_equal(output, [4.0, 7.0])
    assert (type(started), stopped) == (bytes, None)


@pytest.mark.numeric
def test_replicas_train_together() -> None:
    x = tf.constant([[1.0], [2.0]])
    (losses,) = v1.tpu.shard(
        lambda x: train_step(v1.train.GradientDescentOptimizer(0.1), x, x * 3.0), [x], num_shards=2
    )
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        assert session.run(losses).tolist() == [9.0, 36.0]
        # The replicas' gradients are -6 and -24, their mean is -15, and the rate is 0.1: w = 1.5.
        np.testing.assert_allclose(session.run(losses), [1.5**2, 3.0**2], rtol=1e-6)
        assert session.run(v1.train.get_global_step()) == 2


def test_results_of_batch_shards_are_concatenated() -> None:
    x = v1.placeholder(tf.float32, [None, 1])
    (doubled,) = v1.tpu.batch_parallel(lambda x: x * 2.0, [x], num_shards=2)
    summed = v1.tpu.replicate(v1.tpu.cross_replica_sum, [[tf.constant(1.0)]] * 3)
    for rows in (2, 4):
        values = np.arange(rows, dtype=np.float32)[:, None]
        results = own_session.run_fetches(doubled, summed, feed={x: values})
        np.testing.assert_array_equal(results[0], values * 2)
        assert results[1] == [[3.0]] * 3


def test_computation_without_results_returns_none() -> None:
    v = v1.get_variable("v", [], initializer=v1.ones_initializer())
    operation = v1.tpu.rewrite(lambda: v.assign_add(4.0, read_value=False))
    with v1.Session() as session:
        session.run(v.initializer)
        assert session.run(operation) is None
        assert session.run(v) == 5.0


@pytest.mark.slow
@pytest.mark.numeric
def test_monitored_session_resumes_from_its_checkpoint(tmp_path: Path) -> None:
    x = tf.ones([8, 1])
    (losses,) = v1.tpu.shard(
        lambda x: train_step(v1.train.MomentumOptimizer(0.1, 0.9), x, x * 3.0), [x], num_shards=8
    )
    w = 0.0
    momentum = 0.0
    for last_step in (2, 4):
        hook = v1.train.StopAtStepHook(last_step=last_step)
        with v1.train.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path), hooks=[hook], save_summaries_steps=None
        ) as session:
            while not session.should_stop():
                replica_losses = session.run(losses)
                np.testing.assert_allclose(replica_losses, [(w - 3.0) ** 2] * 8, rtol=1e-5)
                momentum = momentum * 0.9 + 2.0 * (w - 3.0)
                w -= 0.1 * momentum
    reader = tf.train.load_checkpoint(str(tmp_path))
    np.testing.assert_allclose(reader.get_tensor("w"), [[w]], rtol=1e-5)
    assert reader.get_tensor("global_step") == 4


def test_outside_compilation_runs_on_the_host() -> None:
    host_inputs: list[Any] = []

    def double_on_host(x: Any) -> Any:
        host_inputs.append(float(x))
        return np.float32(x * 2.0)

    def computation(x: Any) -> Any:
        on_host = v1.tpu.outside_compilation(
            lambda y: tf.numpy_function(double_on_host, [y], tf.float32), x
        )
        return tf.reshape(on_host, [1]) + 1.0

    (results,) = v1.tpu.shard(lambda x: computation(x[0]), [tf.constant([1.0, 2.0])], num_shards=2)
    assert own_session.run_fetches(results)[0].tolist() == [3.0, 5.0]
    assert sorted(host_inputs) == [1.0, 2.0]


def test_training_loop_reads_infeeds_and_writes_outfeeds() -> None:
    queue = tpu_feed.InfeedQueue(2, tuple_types=[tf.float32] * 2, tuple_shapes=[[2, 1], [2, 1]])
    queue.set_number_of_shards(2)

    def body(total: Any, x: Any, y: Any) -> Any:
        product = tf.reduce_sum(v1.tpu.cross_replica_sum(x * y))
        with tf.control_dependencies([tpu_ops.outfeed_enqueue_tuple([product])]):
            return total + product

    (total,) = v1.tpu.shard(
        lambda: training_loop.repeat(2, body, [0.0], infeed_queue=queue),
        num_shards=2,
        outputs_from_all_shards=False,
    )
    x = [[tf.fill([1, 1], core + 1.0), tf.fill([1, 1], 10.0)] for core in range(2)]
    enqueue = queue.generate_enqueue_ops(x, tpu_ordinal_function=lambda core: core)
    dequeue = [
        tpu_ops.outfeed_dequeue_tuple([tf.float32], [[]], device_ordinal=core) for core in range(2)
    ]
    with v1.Session() as session:
        session.run(enqueue)
        session.run(enqueue)
        # Each of the two steps adds the fed numbers 10 and 20.
        assert session.run(total) == 60.0
        assert session.run(dequeue) == [[30.0], [30.0]]


def test_more_replicas_than_cores_are_refused() -> None:
    with pytest.raises(TpuNotFound, match="16 replicas.*8 cores.*--emulate-tpu 16"):
        v1.tpu.replicate(lambda x: x, [[tf.constant(1.0)]] * 16)


def test_infeed_of_several_hosts_is_refused() -> None:
    with (
        own_session.emulated_tpu_graph(8, hosts=2),
        pytest.raises(TpuNotFound, match="several hosts.*--emulate-tpu 8"),
    ):
        tpu_ops.infeed_enqueue_tuple([tf.ones([1])], [[1]], device_ordinal=0)
