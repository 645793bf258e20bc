from typing import Any

import pytest

from tpuserve.errors import InvalidSetting
from trainer.config.run_config import InputPipelineConfig, TPUConfig
from trainer.distribution.topology import BatchTopology, EmulatedTpuSlice, TpuSlice
from trainer.distribution.tpu_context import TPUContext


def topology(cores_per_replica: int | None = None, is_emulated: bool = False) -> BatchTopology:
    config = TPUConfig(
        num_cores_per_replica=cores_per_replica,
        per_host_input_for_training=InputPipelineConfig.PER_HOST_V2,
    )
    system = EmulatedTpuSlice(4, 32) if is_emulated else TpuSlice(4, 32, job="worker")
    return BatchTopology(system, config, "train", 64)


def context_of_host(host: int, result: BatchTopology) -> TPUContext:
    return TPUContext.for_input_fn(result, result.pipelines[host])


def test_input_fn_learns_its_host_and_the_number_of_its_call() -> None:
    context = context_of_host(2, topology())
    assert context.current_host == 2
    deployment = ("/job:worker/task:2/device:CPU:0", 2, 4, 8)
    assert context.current_input_fn_deployment() == deployment
    sizes = (context.num_replicas, context.num_hosts, context.num_of_replicas_per_host)
    assert sizes == (32, 4, 8)


def test_hosts_of_an_emulated_system_have_a_context_each() -> None:
    result = topology(is_emulated=True)
    assert [context_of_host(host, result).current_host for host in range(4)] == [0, 1, 2, 3]
    assert context_of_host(1, result).device_for_replica(9) == ("/task:0/device:CPU:0", 9)


def test_what_only_input_fn_has_is_refused_in_model_fn() -> None:
    context = TPUContext.for_model_fn(topology())
    with pytest.raises(RuntimeError, match="must not be called from model_fn"):
        _ = context.current_host
    with pytest.raises(RuntimeError, match="must not be called from model_fn"):
        context.current_input_fn_deployment()


def test_device_assignment_is_for_model_fn_only() -> None:
    assert TPUContext.for_model_fn(topology()).device_assignment is None
    with pytest.raises(RuntimeError, match="must not be called from input_fn"):
        _ = context_of_host(0, topology()).device_assignment


def test_replicas_and_hosts_have_devices() -> None:
    context = TPUContext.for_model_fn(topology(cores_per_replica=2))
    assert context.device_for_replica(5) == ("/job:worker/task:1/device:CPU:0", 2)
    place = context.tpu_host_placement_function
    assert place(replica_id=5) == place(host_id=1) == "/job:worker/task:1/device:CPU:0"
    assert place(1) == place(host_id=1)


@pytest.mark.parametrize("which", [{}, {"replica_id": 0, "host_id": 0}, {"host_id": 4}])
def test_a_host_must_be_named_by_one_existing_number(which: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match="Give"):
        TPUContext.for_model_fn(topology()).tpu_host_placement_function(**which)


def test_replicas_across_hosts_have_no_count_per_host() -> None:
    context = TPUContext.for_model_fn(topology(cores_per_replica=16))
    with pytest.raises(ValueError, match="one replica takes several hosts"):
        _ = context.num_of_replicas_per_host


def test_an_assignment_says_where_the_cores_of_a_replica_are() -> None:
    import tensorflow as tf

    # There are two hosts with two cores each. Host 0 has the mesh coordinate x = 1, and host 1 has
    # x = 0, so replica 0, which begins at x = 0, is on host 1.
    coordinates = [[[1, 0, 0, 0], [1, 0, 0, 1]], [[0, 0, 0, 0], [0, 0, 0, 1]]]
    mesh = tf.tpu.experimental.Topology(mesh_shape=[2, 1, 1, 2], device_coordinates=coordinates)
    assigned = tf.tpu.experimental.DeviceAssignment.build(
        mesh, computation_shape=[1, 1, 1, 2], num_replicas=2
    )
    config = TPUConfig(num_cores_per_replica=2)
    result = BatchTopology(TpuSlice(2, 4, job="worker"), config, "train", 8)
    context = TPUContext.for_model_fn(result, assigned)
    assert context.device_assignment is assigned
    assert context.device_for_replica(0) == ("/job:worker/task:1/device:CPU:0", 0)
    assert context.device_for_replica(1) == ("/job:worker/task:0/device:CPU:0", 0)
