"""Finds the TPU core of each replica, and the core whose infeed or outfeed an op uses."""

import re
from typing import TYPE_CHECKING

from tpuserve.errors import LoweringError

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

# The number of coordinates of a core in a TPU topology: x, y and z of its chip, and its index
# within the chip.
_COORDINATES = 4
_TPU_DEVICE = re.compile(r"device:TPU:(?P<ordinal>\d+)", re.IGNORECASE)


def first_cores(metadata: "NodeDef") -> list[int]:
    """Return, for each replica, the index of its first core among the cores of all hosts.

    With model parallelism, a replica has several cores on a TPU.

    Raises:
      LoweringError: the device assignment names a core that the topology does not have.
    """
    num_replicas = metadata.attr["num_replicas"].i
    cores_per_replica = max(metadata.attr["num_cores_per_replica"].i, 1)
    assignment = list(metadata.attr["device_assignment"].list.i)
    if not assignment:
        return [replica * cores_per_replica for replica in range(num_replicas)]
    core_indices = _core_indices(metadata.attr["topology"].s)
    stride = _COORDINATES * cores_per_replica
    first_coordinates = [
        tuple(assignment[start : start + _COORDINATES])
        for start in range(0, len(assignment), stride)
    ]
    for coordinates in first_coordinates:
        if coordinates not in core_indices:
            raise LoweringError(
                f"the device assignment of {metadata.name!r} names a core at "
                f"{list(coordinates)}, but its topology has no such core. Build the device "
                f"assignment from the topology that initialize_system returns."
            )
    return [core_indices[coordinates] for coordinates in first_coordinates]


def _core_indices(topology: bytes) -> dict[tuple[int, ...], int]:
    from tensorflow.core.protobuf.tpu.topology_pb2 import TopologyProto

    flat = TopologyProto.FromString(topology).device_coordinates
    return {
        tuple(flat[start : start + _COORDINATES]): start // _COORDINATES
        for start in range(0, len(flat), _COORDINATES)
    }


def target_core(host_op: "NodeDef") -> int:
    """Return the ordinal of the TPU core with which an infeed or outfeed op exchanges data.

    Args:
      host_op: an infeed enqueue or outfeed dequeue, which runs on the host. The ordinal is in its
        attribute `device_ordinal`; if this is negative, in the name of its device.
    """
    ordinal = host_op.attr["device_ordinal"].i
    if ordinal >= 0:
        return ordinal
    device = _TPU_DEVICE.search(host_op.device)
    if device is None:
        raise LoweringError(
            f"{host_op.op} {host_op.name!r} names no TPU core: its device_ordinal is {ordinal} "
            f"and its device is {host_op.device!r}. Give it a device_ordinal."
        )
    return int(device["ordinal"])
