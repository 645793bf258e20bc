import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu import tpu_system_metadata
from tensorflow.python.tpu.device_assignment import device_assignment
from tensorflow.python.tpu.topology import Topology

from tests.trainer.compat.emulation import own_session
from tpuserve.devices import TpuSystem
from trainer.compat.emulation import builders

v1 = tf.compat.v1


@pytest.mark.parametrize(
    ("cores", "hosts", "mesh"),
    [
        (8, 1, [2, 2, 1, 2]),
        (16, 2, [2, 4, 1, 2]),
        (4, 1, [2, 1, 1, 2]),
        (6, 2, [1, 6, 1, 1]),
        (1, 1, [1, 1, 1, 1]),
    ],
)
def test_every_core_has_coordinates_in_the_mesh(cores: int, hosts: int, mesh: list[int]) -> None:
    mesh_topology = Topology(
        serialized=builders.serialize_topology(TpuSystem(cores, hosts, is_emulated=True))
    )
    assert (mesh_topology.mesh_shape.tolist(), mesh_topology.num_tasks) == (mesh, hosts)
    assert len({tuple(core) for core in mesh_topology.device_coordinates.reshape(-1, 4)}) == cores
    assert not mesh_topology.missing_devices.size


def test_device_assignment_places_replicas() -> None:
    with own_session.emulated_tpu_graph():
        (started,) = own_session.run_fetches(v1.tpu.initialize_system())
        assignment = device_assignment(Topology(serialized=started), [1, 1, 1, 2], num_replicas=4)
        results = v1.tpu.replicate(
            lambda x: x * 2.0,
            [[tf.constant(value)] for value in (0.0, 1.0, 2.0, 3.0)],
            None,
            assignment,
        )
        with tf.device(assignment.host_device(replica=3, job="tpu_worker")):
            total = tf.add_n([result[0] for result in results])
        assert own_session.run_fetches(total) == [12.0]


def test_system_metadata_describes_the_emulated_tpu() -> None:
    with own_session.emulated_tpu_graph(8, hosts=2):
        metadata = tpu_system_metadata._query_tpu_system_metadata("")
    assert (metadata.num_cores, metadata.num_hosts, metadata.num_of_cores_per_host) == (8, 2, 4)
    np.testing.assert_array_equal(metadata.topology.mesh_shape, [2, 2, 1, 2])
