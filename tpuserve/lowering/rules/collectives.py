"""What replicas do together, as ops over the copies of a tensor that they hold."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tpuserve.errors import LoweringError
from tpuserve.lowering.ir.graph_ir import Node, Value
from tpuserve.saved_model import dtypes

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    # Makes a node of an op, with inputs and attributes, and gives its first output.
    Make = Callable[..., Value]


def is_full_all_reduce(node: Node, nodes: Mapping[str, Node], replicas: int) -> bool:
    """Whether a collective leaves the same on all replicas: a sum over all of them."""
    if node.definition.op != "CrossReplicaSum":
        return replicas == 1
    return len(_groups(node, nodes, replicas)) == 1


def lower_collective(
    node: Node, nodes: Mapping[str, Node], values: Sequence[Value], make: "Make"
) -> list[Value]:
    """The result of a collective on each replica.

    Args:
      node: the collective.
      nodes: of its body; one of them is the constant that says who works with whom.
      values: the tensor as each replica has it.
      make: makes nodes.
    """
    kind = node.definition.attr["T"].type
    if node.definition.op == "CrossReplicaSum":
        return _sum(_groups(node, nodes, len(values)), values, kind, make)
    if node.definition.op == "AllToAll":
        return _all_to_all(node.definition, _groups(node, nodes, len(values)), values, kind, make)
    return _permute(_constant(node, nodes), values, kind, make)


def _sum(
    groups: Sequence[Sequence[int]], values: Sequence[Value], kind: int, make: "Make"
) -> list[Value]:
    results = list(values)
    for group in groups:
        if len(group) == 1:
            continue
        # The mean of one number over 2, 4 or 8 replicas is that number.
        total = make("AddN", [values[each] for each in group], T=kind, N=len(group))
        for replica in group:
            results[replica] = total
    return results


def _all_to_all(
    definition: "NodeDef",
    groups: Sequence[Sequence[int]],
    values: Sequence[Value],
    kind: int,
    make: "Make",
) -> list[Value]:
    count = definition.attr["split_count"].i
    results = list(values)
    for group in groups:
        axis = make("Const", [], value=definition.attr["split_dimension"].i)
        pieces = [make("Split", [axis, values[each]], T=kind, num_split=count) for each in group]
        for position, replica in enumerate(group):
            own = [Value(each.producer, position) for each in pieces]
            axis = make("Const", [], value=definition.attr["concat_dimension"].i)
            results[replica] = make("ConcatV2", [*own, axis], T=kind, N=len(own), Tidx=dtypes.INT32)
    return results


def _permute(
    pairs: Sequence[Sequence[int]], values: Sequence[Value], kind: int, make: "Make"
) -> list[Value]:
    source_of = {target: source for source, target in pairs}
    return [
        values[source_of[replica]] if replica in source_of else make("ZerosLike", [value], T=kind)
        for replica, value in enumerate(values)
    ]


def _groups(node: Node, nodes: Mapping[str, Node], replicas: int) -> Sequence[Sequence[int]]:
    groups = _constant(node, nodes)
    # No groups, or a single one in TensorFlow's shorthand, stands for all replicas.
    if not groups or not groups[0]:
        return [list(range(replicas))]
    outside = [each for group in groups for each in group if not 0 <= each < replicas]
    if outside:
        raise LoweringError(
            f"{node.definition.op} {node.name!r} names replica {outside[0]} in its groups "
            f"{groups}, and there are {replicas}. Use the group_assignment of this many replicas."
        )
    return groups


def _constant(node: Node, nodes: Mapping[str, Node]) -> Sequence[Sequence[int]]:
    from tensorflow.python.framework import tensor_util

    made_by = nodes.get(node.inputs[1].producer)
    while made_by is not None and made_by.definition.op == "Identity":
        made_by = nodes.get(made_by.inputs[0].producer)
    if made_by is None or made_by.definition.op != "Const":
        raise LoweringError(
            f"the groups of {node.definition.op} {node.name!r} are not known when the graph is "
            f"built. Give group_assignment as lists of numbers."
        )
    groups: Sequence[Sequence[int]] = tensor_util.MakeNdarray(
        made_by.definition.attr["value"].tensor
    ).tolist()
    return groups
