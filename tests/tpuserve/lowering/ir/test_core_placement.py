import pytest
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.python.tpu.device_assignment import device_assignment
from tensorflow.python.tpu.topology import Topology

from tpuserve.errors import LoweringError
from tpuserve.lowering.ir import core_placement


def metadata(replicas: int, per_replica: int = 1, assignment: tuple[int, ...] = ()) -> NodeDef:
    node = NodeDef(name="computation", op="TPUReplicateMetadata")
    node.attr["num_replicas"].i = replicas
    node.attr["num_cores_per_replica"].i = per_replica
    node.attr["device_assignment"].list.i.extend(assignment)
    # A 2x2 square of chips with two cores each.
    coordinates = [[[x, y, 0, core] for y in range(2) for x in range(2) for core in range(2)]]
    node.attr["topology"].s = Topology(
        mesh_shape=[2, 2, 1, 2], device_coordinates=coordinates
    ).serialized()
    return node


def test_replicas_without_an_assignment_have_consecutive_cores() -> None:
    assert core_placement.first_cores(metadata(4)) == [0, 1, 2, 3]
    assert core_placement.first_cores(metadata(2, 4)) == [0, 4]


def test_replicas_have_their_assigned_cores() -> None:
    node = metadata(4, 2)
    assignment = device_assignment(
        Topology(serialized=node.attr["topology"].s), [1, 1, 1, 2], num_replicas=4
    )
    assigned = metadata(4, 2, tuple(assignment.core_assignment.flatten().tolist()))
    # TensorFlow assigns the chips in a ring: (0, 0), (1, 0), (1, 1), (0, 1). Chip (1, 1) has the
    # cores 6 and 7, chip (0, 1) has 4 and 5.
    assert core_placement.first_cores(assigned) == [0, 2, 6, 4]


def test_assignment_to_an_unknown_core_is_refused() -> None:
    with pytest.raises(LoweringError, match=r"a core at \[0, 0, 7, 0\], but its topology"):
        core_placement.first_cores(metadata(1, 1, (0, 0, 7, 0)))


def test_host_op_names_its_core_by_ordinal_or_device() -> None:
    node = NodeDef(name="feed", op="InfeedEnqueue", device="/job:worker/device:TPU:3")
    node.attr["device_ordinal"].i = -1
    assert core_placement.target_core(node) == 3
    node.attr["device_ordinal"].i = 5
    assert core_placement.target_core(node) == 5


def test_host_op_without_a_core_is_refused() -> None:
    node = NodeDef(name="feed", op="InfeedEnqueue", device="/device:CPU:0")
    node.attr["device_ordinal"].i = -1
    with pytest.raises(LoweringError, match="InfeedEnqueue 'feed' names no TPU core"):
        core_placement.target_core(node)
