"""Rules for collectives: ops on the copies of a tensor that the replicas hold.

Once all replicas are in one graph, a collective is an ordinary op on their values.
"""

from collections.abc import Mapping, Sequence

from tpuserve.errors import LoweringError
from tpuserve.lowering.ir.graph_ir import Node, Value
from tpuserve.lowering.rules.op_spec import ReplicatedOp
from tpuserve.saved_model import dtypes


def is_full_all_reduce(node: Node, nodes: Mapping[str, Node], num_replicas: int) -> bool:
    """Return whether a CrossReplicaSum sums over all replicas, so that all get the same result.

    Args:
      node: the CrossReplicaSum.
      nodes: name → node of its graph, among them the constant that holds its replica groups.
      num_replicas: the number of replicas.
    """
    return len(_replica_groups(node, nodes, num_replicas)) == 1


def lower_cross_replica_sum(op: ReplicatedOp) -> list[list[Value]]:
    """Lower a CrossReplicaSum: an AddN for each replica group gives the sum of the group."""
    dtype = op.node.definition.attr["T"].type
    values = op.operand(0)
    results = list(values)
    for group in _replica_groups(op.node, op.nodes, op.num_replicas):
        if len(group) == 1:
            continue
        # Let one AddN, which adds in a fixed order, compute the sum for all replicas of the group,
        # so that all get the same sum. If 2, 4 or 8 replicas have equal values, the sum divided by
        # the number of replicas is exactly that value.
        total = op.make_node("AddN", [values[replica] for replica in group], T=dtype, N=len(group))
        for replica in group:
            results[replica] = total
    return [results]


def lower_all_to_all(op: ReplicatedOp) -> list[list[Value]]:
    """Lower an AllToAll: replica i of a group gets the slices i of the group's tensors, joined."""
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
    """Lower a CollectivePermute: targets get their source's value, other replicas get zeros."""
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
    groups = _constant_rows(node, nodes)
    # No groups, or one empty group, mean that all replicas form one group.
    if not groups or not groups[0]:
        return [list(range(num_replicas))]
    unknown = [replica for group in groups for replica in group if not 0 <= replica < num_replicas]
    if unknown:
        raise LoweringError(
            f"{node.op} {node.name!r} names replica {unknown[0]} in its groups {groups}, but "
            f"there are {num_replicas} replicas. Use a group_assignment for {num_replicas} "
            f"replicas."
        )
    return groups


def _constant_rows(node: Node, nodes: Mapping[str, Node]) -> Sequence[Sequence[int]]:
    """Return the value of a collective's second input, which must be a constant.

    The value has a row for each group of replicas or, for a CollectivePermute, for each pair of
    source and target.
    """
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
