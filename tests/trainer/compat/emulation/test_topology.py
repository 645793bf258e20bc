import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu import tpu_system_metadata
from tensorflow.python.tpu.device_assignment import device_assignment
from tensorflow.python.tpu.topology import Topology

from tests.trainer.compat.emulation import own
from tpuserve.devices import TpuSystem
from trainer.compat.emulation import topology

pytestmark = pytest.mark.slow
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
def test_every_core_has_a_place_in_the_mesh(cores: int, hosts: int, mesh: list[int]) -> None:
    found = Topology(
        serialized=topology.serialize_topology(TpuSystem(cores, hosts, is_emulated=True))
    )
    assert (found.mesh_shape.tolist(), found.num_tasks) == (mesh, hosts)
    assert len({tuple(each) for each in found.device_coordinates.reshape(-1, 4)}) == cores
    assert not found.missing_devices.size


def test_computations_go_where_they_are_assigned() -> None:
    with own.emulated():
        (started,) = own.run(v1.tpu.initialize_system())
        made = device_assignment(Topology(serialized=started), [1, 1, 1, 2], num_replicas=4)
        results = v1.tpu.replicate(
            lambda x: x * 2.0, [[tf.constant(each)] for each in (0.0, 1.0, 2.0, 3.0)], None, made
        )
        with tf.device(made.host_device(replica=3, job="tpu_worker")):
            total = tf.add_n([each[0] for each in results])
        assert own.run(total) == [12.0]


def test_a_master_tells_of_the_emulated_system() -> None:
    with own.emulated(8, hosts=2):
        found = tpu_system_metadata._query_tpu_system_metadata("")
    assert (found.num_cores, found.num_hosts, found.num_of_cores_per_host) == (8, 2, 4)
    np.testing.assert_array_equal(found.topology.mesh_shape, [2, 2, 1, 2])
