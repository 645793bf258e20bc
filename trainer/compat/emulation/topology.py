"""Builds TensorFlow's descriptions of a TPU system for an emulated TPU: topology and metadata."""

from tensorflow.core.protobuf.tpu import topology_pb2

from tpuserve.devices import TpuSystem
from trainer.tensorflow_internals import Topology, TPUSystemMetadata


def serialize_topology(tpu_system: TpuSystem) -> bytes:
    """Return the serialized TopologyProto of an emulated TPU system.

    Each chip has two cores, or one core if a host has an odd number of cores.
    """
    cores = tpu_system.tpu_cores // tpu_system.hosts
    cores_per_chip = 2 - cores % 2
    chips = cores // cores_per_chip
    columns = 2 - chips % 2
    rows = chips // columns
    topology = topology_pb2.TopologyProto(
        mesh_shape=[columns, rows * tpu_system.hosts, 1, cores_per_chip],
        num_tasks=tpu_system.hosts,
        num_tpu_devices_per_task=cores,
    )
    for host in range(tpu_system.hosts):
        for core in range(cores):
            row, column = divmod(core // cores_per_chip, columns)
            topology.device_coordinates.extend(
                [column, host * rows + row, 0, core % cores_per_chip]
            )
    return topology.SerializeToString()


def make_system_metadata(tpu_system: TpuSystem) -> TPUSystemMetadata:
    """Return the TPUSystemMetadata of an emulated TPU system.

    The object replaces what TensorFlow would read from the server of a real TPU.
    """
    return TPUSystemMetadata(
        num_cores=tpu_system.tpu_cores,
        num_hosts=tpu_system.hosts,
        num_of_cores_per_host=tpu_system.tpu_cores // tpu_system.hosts,
        topology=Topology(serialized=serialize_topology(tpu_system)),
        devices=(),
    )
