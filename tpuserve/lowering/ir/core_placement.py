"""Which cores the replicas of a computation have, and which core's infeed or outfeed is meant."""

import re
from typing import TYPE_CHECKING

from tpuserve.errors import LoweringError

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

_AXES = 4
_CORE = re.compile(r"device:TPU:(?P<number>\d+)", re.IGNORECASE)


def first_cores(metadata: "NodeDef") -> list[int]:
    """For each replica, the number of the first of its cores among those of all hosts.

    Each replica works on the first of its cores; the emulated others stay idle.

    Args:
      metadata: the TPUReplicateMetadata of the computation.
    """
    replicas = metadata.attr["num_replicas"].i
    per_replica = max(metadata.attr["num_cores_per_replica"].i, 1)
    assignment = list(metadata.attr["device_assignment"].list.i)
    if not assignment:
        return [replica * per_replica for replica in range(replicas)]
    numbers = _numbers(metadata.attr["topology"].s)
    firsts = [assignment[each:][:_AXES] for each in range(0, len(assignment), _AXES * per_replica)]
    for each in firsts:
        if tuple(each) not in numbers:
            raise LoweringError(
                f"the device assignment of {metadata.name!r} names a core at {each}, which its "
                f"topology has not. Make it of the topology that initialize_system gives."
            )
    return [numbers[tuple(each)] for each in firsts]


def _numbers(topology: bytes) -> dict[tuple[int, ...], int]:
    """Coordinates in the mesh → number of the core."""
    from tensorflow.core.protobuf.tpu.topology_pb2 import TopologyProto

    flat = TopologyProto.FromString(topology).device_coordinates
    return {tuple(flat[each : each + _AXES]): each // _AXES for each in range(0, len(flat), _AXES)}


def core_of(host_end: "NodeDef") -> int:
    """The core whose infeed or outfeed a host's op is for, by its ordinal or else its device."""
    ordinal = host_end.attr["device_ordinal"].i
    if ordinal >= 0:
        return ordinal
    device = _CORE.search(host_end.device)
    if device is None:
        raise LoweringError(
            f"{host_end.op} {host_end.name!r} does not say for which core it is. Give it a "
            f"device_ordinal."
        )
    return int(device["number"])
