from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tpuserve
import trainer
from tests.trainer import programs
from tests.trainer.backends.tpu.cluster import cluster_processes
from tpuserve.errors import HostLost, InvalidSetting
from trainer.backends.tpu.runtime.cluster import ClusterRuntime
from trainer.config.cluster_hosts import ClusterHosts, Task
from trainer.distribution.topology import EmulatedClusterSlice
from trainer.hosts import cluster_server

pytestmark = pytest.mark.slow

v1 = tf.compat.v1
Modes = trainer.InputPipelineConfig
CORES, HOSTS, ROWS = 4, 2, 8


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    """Gathers rows of a table, and adds a layer with a variable that a loop reads."""
    table = v1.get_variable("table", [5, 3], initializer=v1.glorot_uniform_initializer(seed=1))
    weights = v1.get_variable("weights", [3, 3], initializer=v1.glorot_uniform_initializer(seed=2))
    x = tf.gather(table, features["id"]) * features["scale"][:, tf.newaxis]
    (x,) = tf.while_loop(
        lambda _: True, lambda x: [tf.tanh(x @ weights)], [x], maximum_iterations=2
    )
    y = tf.reduce_sum(x, 1)
    if mode == trainer.ModeKeys.PREDICT:
        return trainer.TPUEstimatorSpec(mode, predictions={"y": y})
    loss = tf.reduce_mean((y - labels) ** 2)
    if mode == trainer.ModeKeys.EVAL:
        metrics = (lambda y: {"mean_y": v1.metrics.mean(y)}), [y]
        return trainer.TPUEstimatorSpec(mode, loss=loss, eval_metrics=metrics)
    v1.summary.scalar("largest", tf.reduce_max(table))
    optimizer = trainer.CrossShardOptimizer(v1.train.MomentumOptimizer(0.05, 0.9))
    train_op = optimizer.minimize(loss, v1.train.get_global_step())
    return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn(params: Any) -> Any:
    """Batches of each host's own random rows; odd hosts have the features in another order."""
    context = params.get("context")
    host, rows = (context.current_host if context else 0), params["batch_size"]
    random = np.random.default_rng(host)
    scale = random.normal(size=[20, rows]).astype(np.float32)
    features = {"id": random.integers(0, 5, [20, rows]).astype(np.int32), "scale": scale}
    if host % 2:
        features = dict(reversed(features.items()))
    return tf.data.Dataset.from_tensor_slices((features, np.tanh(scale)))


@pytest.fixture(scope="module")
def resolver() -> Any:
    """A cluster of this process, which leads, with a second server in this process."""
    spec = tf.train.ClusterSpec({"worker": cluster_processes.addresses(HOSTS)})
    tf.distribute.Server(spec, job_name="worker", task_index=1)
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        spec, task_type="worker", task_id=0, rpc_layer="grpc"
    )


def estimator(model_dir: Path, mode: int = Modes.PER_HOST_V2, **config: Any) -> Any:
    tpu_config = trainer.TPUConfig(iterations_per_loop=4, per_host_input_for_training=mode)
    run_config = trainer.RunConfig(
        tpu_config, model_dir=str(model_dir), tf_random_seed=1, save_summary_steps=4, **config
    )
    return trainer.TPUEstimator(
        model_fn,
        config=run_config,
        train_batch_size=ROWS,
        eval_batch_size=ROWS,
        predict_batch_size=ROWS,
    )


def variables(model_dir: Path) -> dict[str, Any]:
    """All variables of the newest checkpoint."""
    reader = tf.train.load_checkpoint(str(model_dir))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def assert_close(first: Any, second: Any) -> None:
    """Compare values by name.

    In a cluster, the gathers and the loop read the table and the weights outside of the functions
    that XLA compiles, which may then round differently: 10 steps of 32 bits differ by some 1e-7.
    """
    assert first.keys() == second.keys()
    for name, value in first.items():
        np.testing.assert_allclose(value, second[name], rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    "mode", [Modes.PER_SHARD_V1, Modes.PER_HOST_V1, Modes.PER_HOST_V2, Modes.BROADCAST]
)
@pytest.mark.numeric
def test_hosts_of_a_cluster_train_what_hosts_in_one_process_train(
    mode: int, resolver: Any, tmp_path: Path
) -> None:
    with tpuserve.emulated_tpu(CORES, HOSTS):
        alone = estimator(tmp_path / "one", mode).train(input_fn, steps=10)
        expected = alone.evaluate(input_fn, 3) if mode == Modes.PER_HOST_V2 else {}
    with tpuserve.emulated_tpu(CORES):
        together = estimator(tmp_path / "two", mode, cluster=resolver).train(input_fn, steps=10)
        evaluation = together.evaluate(input_fn, 3) if mode == Modes.PER_HOST_V2 else {}
    assert_close(variables(tmp_path / "two"), variables(tmp_path / "one"))
    assert_close(evaluation, expected)
    largest = [programs.scalars(tmp_path / name)["largest"] for name in ("one", "two")]
    assert largest[0].keys() == {4, 8}
    assert_close(*largest)


def test_a_process_outside_of_the_cluster_trains_on_its_servers(
    resolver: Any, tmp_path: Path
) -> None:
    spec = resolver.cluster_spec()
    # Started by this process too, once the leader's tests have used it.
    cluster_server.start_server(spec, "worker", 0)
    outside = tf.distribute.cluster_resolver.SimpleClusterResolver(
        spec, master=spec.task_address("worker", 0), rpc_layer="grpc"
    )
    with tpuserve.emulated_tpu(CORES):
        estimator(tmp_path, cluster=outside).train(input_fn, steps=2)
        nowhere = tf.distribute.cluster_resolver.SimpleClusterResolver(spec)
        with pytest.raises(InvalidSetting, match="neither a master nor the task"):
            estimator(tmp_path, cluster=nowhere).train(input_fn, steps=1)
    assert variables(tmp_path)["global_step"] == 2


@pytest.mark.numeric
def test_a_broadcast_input_is_predicted(resolver: Any, tmp_path: Path) -> None:
    with tpuserve.emulated_tpu(CORES, HOSTS):
        alone = estimator(tmp_path, Modes.BROADCAST).train(input_fn, steps=1)
        expected = [row["y"] for row in alone.predict(input_fn)]
    with tpuserve.emulated_tpu(CORES):
        together = estimator(tmp_path, Modes.BROADCAST, cluster=resolver)
        predictions = [row["y"] for row in together.predict(input_fn)]
    assert len(predictions) == 160
    np.testing.assert_allclose(predictions, expected, rtol=1e-5, atol=1e-6)


def test_python_code_of_a_later_input_fn_is_refused_in_another_process(
    resolver: Any, tmp_path: Path
) -> None:
    def generate(params: Any) -> Any:
        dataset = input_fn(params)
        return dataset.map(
            lambda x, y: (x, tf.ensure_shape(tf.numpy_function(np.sin, [y], tf.float32), [2]))
        )

    with (
        tpuserve.emulated_tpu(CORES),
        pytest.raises(InvalidSetting, match="calls Python code on .*/task:1"),
    ):
        estimator(tmp_path, cluster=resolver).train(input_fn, steps=1).train(generate, steps=1)


def test_a_hook_that_fetches_a_tensor_of_the_computation_is_told_so(
    resolver: Any, tmp_path: Path
) -> None:
    class Fetch(tf.compat.v1.train.SessionRunHook):
        def before_run(self, run_context: Any) -> Any:
            (metadata,) = (
                operation
                for operation in run_context.session.graph.get_operations()
                if operation.type == "TPUReplicateMetadata"
            )
            return v1.train.SessionRunArgs(metadata)

    with (
        tpuserve.emulated_tpu(CORES),
        pytest.raises(ValueError, match="is a part of the TPU's computation"),
    ):
        estimator(tmp_path, cluster=resolver).train(input_fn, [Fetch()], steps=1)


def test_an_evaluation_that_loses_a_process_names_it() -> None:
    tasks = tuple(
        Task("worker", i, address) for i, address in enumerate(cluster_processes.addresses(2))
    )
    runtime = ClusterRuntime(
        system=EmulatedClusterSlice(2, 4, host_devices=tuple(task.device for task in tasks)),
        hosts=ClusterHosts(tasks, leader=tasks[0], own=tasks[0]),
        timeout_secs=1,
    )
    topology: Any = None
    config: Any = None
    with (
        pytest.raises(HostLost, match=r"^worker 1 \(.*\) is lost: Socket closed\. Start"),
        runtime.initialized_system(topology, config),
    ):
        raise tf.errors.UnavailableError(None, None, "Socket closed\nand more")


@pytest.mark.parametrize(("cores", "hosts"), [(3, 1), (6, 3)])
def test_cores_that_the_hosts_cannot_share_are_refused(
    cores: int, hosts: int, resolver: Any, tmp_path: Path
) -> None:
    with (
        tpuserve.emulated_tpu(cores, hosts),
        pytest.raises(InvalidSetting, match="Give a multiple of 2 cores, or 2xCORES"),
    ):
        estimator(tmp_path, cluster=resolver).train(input_fn, steps=1)
