"""What an emulated TPU system says of itself."""

from tensorflow.core.protobuf.tpu import topology_pb2

from tpuserve.devices import TpuSystem
from trainer.tensorflow_internals import Topology, TPUSystemMetadata


def serialize_topology(hardware: TpuSystem) -> bytes:
    """The TopologyProto of an emulated system; 8 cores of one host have that of a v2-8.

    Two cores make a chip, and a host's chips stand in two columns, where their numbers are even.
    """
    cores = hardware.tpu_cores // hardware.hosts
    per_chip = 2 - cores % 2
    chips = cores // per_chip
    columns = 2 - chips % 2
    rows = chips // columns
    topology = topology_pb2.TopologyProto(
        mesh_shape=[columns, rows * hardware.hosts, 1, per_chip],
        num_tasks=hardware.hosts,
        num_tpu_devices_per_task=cores,
    )
    for host in range(hardware.hosts):
        for core in range(cores):
            row, column = divmod(core // per_chip, columns)
            topology.device_coordinates.extend([column, host * rows + row, 0, core % per_chip])
    return topology.SerializeToString()


def make_system_metadata(hardware: TpuSystem) -> TPUSystemMetadata:
    """What TensorFlow finds out about a system when it asks its master."""
    return TPUSystemMetadata(
        num_cores=hardware.tpu_cores,
        num_hosts=hardware.hosts,
        num_of_cores_per_host=hardware.tpu_cores // hardware.hosts,
        topology=Topology(serialized=serialize_topology(hardware)),
        devices=(),
    )
