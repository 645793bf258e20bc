"""Rules that replace collective ops, which combine the tensors of several replicas, by CPU ops.

Without a TPU, one graph does the work of all replicas. An ordinary op such as AddN can then combine
their tensors.
"""

from collections.abc import Mapping, Sequence
from itertools import chain

from tpuserve.errors import LoweringError
from tpuserve.lowering.ir.graph_ir import Node, Value
from tpuserve.lowering.rules.op_spec import ReplicatedOp
from tpuserve.saved_model import dtypes


def is_full_all_reduce(node: Node, nodes: Mapping[str, Node], num_replicas: int) -> bool:
    """Return whether a CrossReplicaSum sums over all replicas, which then get the same result.

    Args:
      nodes: name → node of the graph. One of them is the constant with the groups of replicas over
        which the op sums.
    """
    return len(_replica_groups(node, nodes, num_replicas)) == 1


def lower_cross_replica_sum(op: ReplicatedOp) -> list[list[Value]]:
    """Replace a CrossReplicaSum by an AddN for each group of replicas over which it sums."""
    dtype = op.node.definition.attr["T"].type
    values = op.operand(0)
    results = list(values)
    for group in _replica_groups(op.node, op.nodes, op.num_replicas):
        if len(group) == 1:
            continue
        # Compute the sum once for the whole group, so that all its replicas get exactly the same
        # sum. AddN adds in a fixed order, so that the sum is reproducible.
        total = op.make_node("AddN", [values[replica] for replica in group], T=dtype, N=len(group))
        for replica in group:
            results[replica] = total
    return [results]


def lower_all_to_all(op: ReplicatedOp) -> list[list[Value]]:
    """Replace an AllToAll by Split and ConcatV2 ops.

    The tensor of each replica is split.
    """
    attributes = op.node.definition.attr
    dtype, split_count = attributes["T"].type, attributes["split_count"].i
    values = op.operand(0)
    results = list(values)
    for group in _replica_groups(op.node, op.nodes, op.num_replicas):
        axis = op.make_node("Const", [], value=attributes["split_dimension"].i)
        splits = [
            op.make_node("Split", [axis, values[replica]], T=dtype, num_split=split_count)
            for replica in group
        ]
        for position, replica in enumerate(group):
            slices = [Value(split.producer, position) for split in splits]
            axis = op.make_node("Const", [], value=attributes["concat_dimension"].i)
            results[replica] = op.make_node(
                "ConcatV2", [*slices, axis], T=dtype, N=len(slices), Tidx=dtypes.INT32
            )
    return [results]


def lower_permute(op: ReplicatedOp) -> list[list[Value]]:
    """Replace a CollectivePermute, which copies tensors from source replicas to target replicas.

    A replica that is no target gets zeros, which a ZerosLike op computes.
    """
    dtype = op.node.definition.attr["T"].type
    values = op.operand(0)
    source_of = {target: source for source, target in _constant_rows(op.node, op.nodes)}
    return [
        [
            values[source_of[replica]]
            if replica in source_of
            else op.make_node("ZerosLike", [value], T=dtype)
            for replica, value in enumerate(values)
        ]
    ]


def _replica_groups(
    node: Node, nodes: Mapping[str, Node], num_replicas: int
) -> Sequence[Sequence[int]]:
    """Return the groups of replicas of a CrossReplicaSum or an AllToAll."""
    groups = _constant_rows(node, nodes)
    # An empty list of groups, or a single empty group, means that all replicas form one group.
    if not groups or not groups[0]:
        return [list(range(num_replicas))]
    if sorted(chain.from_iterable(groups)) != list(range(num_replicas)):
        raise LoweringError(
            f"{node.op} {node.name!r} has the groups {groups}, but there are {num_replicas} "
            f"replicas, and XLA needs each replica in exactly one group. Use a group_assignment "
            f"that names each of the replicas 0 to {num_replicas - 1} once."
        )
    return groups


def _constant_rows(node: Node, nodes: Mapping[str, Node]) -> Sequence[Sequence[int]]:
    """Return the replica numbers in the second input of a collective, which must be a constant."""
    from tpuserve.tensorflow_internals import tensor_util

    producer = nodes.get(node.inputs[1].producer)
    while producer is not None and producer.op == "Identity":
        producer = nodes.get(producer.inputs[0].producer)
    if producer is None or producer.op != "Const":
        raise LoweringError(
            f"the groups of {node.op} {node.name!r} are computed in the graph; they must be "
            f"constants. Give group_assignment as lists of numbers."
        )
    rows: Sequence[Sequence[int]] = tensor_util.MakeNdarray(
        producer.definition.attr["value"].tensor
    ).tolist()
    return rows
