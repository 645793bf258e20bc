"""A replicated body cut into units: computations that XLA compiles whole, and what lies between.

Between them lies what a TPU core does not do by itself: infeed and outfeed, collectives, the
parts that run on the host, and loops and branches that hold any of these, or that update
variables and go on with what differs. Such a node, and the plain read of a variable, is a unit of
its own. All else is gathered into three computations a level:

* once: what is the same on all replicas, and is wanted outside of a computation;
* replicated: what differs between replicas, run by each;
* writing: updates of variables, run once, with what replica 0 computed.

Levels make the cut: a node's is the least for which each of its needs is in an earlier unit, or
in its own. So units never wait for each other in a circle.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from tpuserve.graph.graph_walk import HOST_ATTRIBUTE
from tpuserve.lowering.ir import graph_ir, op_traits
from tpuserve.lowering.ir.graph_ir import GraphIR, Node, Value, value_types
from tpuserve.saved_model import dtypes

if TYPE_CHECKING:
    from tpuserve.lowering.ir.op_traits import Library


class ClusterKind(IntEnum):
    """What a unit is; within a level units run in this order."""

    SINGLE_OP = 0
    INVARIANT = 1
    PER_REPLICA = 2
    VARIABLE_UPDATE = 3


@dataclass
class Cluster:
    """Nodes that run as one.

    Attributes:
      kind: what they are.
      level: see the module.
      nodes: in order; a unit that is ALONE has one.
    """

    kind: ClusterKind
    level: int
    nodes: list[Node] = field(default_factory=list)


def partition_into_clusters(
    body: GraphIR, uniform: set[Value], library: "Library", together: Container[str] = ()
) -> list[Cluster]:
    """The units of a body, each after those that it needs.

    Nodes named in `together` are of several kinds at once, so each of them stands alone.

    Constants are in none of them: each unit that uses one has it as its own.
    """
    units: dict[tuple[int, ClusterKind], Cluster] = {}
    alone: list[Cluster] = []
    place: dict[str, tuple[int, ClusterKind]] = {}
    for node in body.nodes.values():
        if node.definition.op == "Const":
            continue
        kind = ClusterKind.SINGLE_OP if node.name in together else _kind(node, uniform, library)
        before = [place[each] for each in graph_ir.predecessors(node) if each in place]
        level = _least_level(kind, before)
        if kind is ClusterKind.INVARIANT and _least_level(ClusterKind.PER_REPLICA, before) < level:
            # Better repeated than waited for: what comes after it would be cut off from what
            # comes before, a gradient from its activations.
            kind = ClusterKind.PER_REPLICA
            level = _least_level(kind, before)
        place[node.name] = (level, kind)
        if kind is ClusterKind.SINGLE_OP:
            alone.append(Cluster(kind, level, [node]))
        else:
            units.setdefault((level, kind), Cluster(kind, level)).nodes.append(node)
    return sorted([*alone, *units.values()], key=lambda each: (each.level, each.kind))


def _least_level(kind: ClusterKind, before: "Iterable[tuple[int, ClusterKind]]") -> int:
    return max((level + (other > kind) for level, other in before), default=0)


def _kind(node: Node, uniform: set[Value], library: "Library") -> ClusterKind:
    definition = node.definition
    if (
        op_traits.communicates(definition, library)
        or definition.op in ("NoOp", "ReadVariableOp", "VarHandleOp")
        or _hands_on_a_handle(node, library)
    ):
        return ClusterKind.SINGLE_OP
    if op_traits.writes_variable(definition, library):
        return ClusterKind.VARIABLE_UPDATE
    is_uniform = all(each in uniform for each in node.inputs) and not op_traits.is_random(
        definition, library
    )
    return ClusterKind.INVARIANT if is_uniform else ClusterKind.PER_REPLICA


def _hands_on_a_handle(node: Node, library: "Library") -> bool:
    return node.definition.op in ("Identity", "IdentityN", "Switch", "Merge") and any(
        op_traits.is_handle(each) for _, each in op_traits.outputs_of(node.definition, library)
    )


def is_on_host(node: Node) -> bool:
    """Whether a node belongs to an outside compilation."""
    return HOST_ATTRIBUTE in node.definition.attr


@dataclass
class ClusterClosure:
    """The nodes of a computation with all that it needs inside, and what it takes and gives.

    Attributes:
      nodes: by name, in order; members of the unit, and copies of nodes that are cheaper to
        repeat than to hand over, or that XLA must see to know a shape.
      inputs: what it takes from outside.
    """

    nodes: dict[str, Node]
    inputs: list[Value]


def close_over_shapes(
    unit: Cluster, body: GraphIR, uniform: set[Value], library: "Library"
) -> ClusterClosure:
    """What a computation must hold so that XLA knows the shapes in it.

    Shapes are numbers that other nodes compute; XLA must see how, so those nodes are repeated
    inside. So is what is computed from variables alone, as each core of a TPU would.
    """
    types = value_types(body, library)
    members = {each.name for each in unit.nodes}
    found: dict[str, Node] = {}
    inputs: dict[Value, None] = {}

    def is_repeated(output: Value) -> bool:
        node = body.nodes.get(output.producer)
        if node is None or op_traits.is_stateful(node.definition, library):
            return False
        if node.definition.op == "Const":
            return True
        if op_traits.communicates(node.definition, library):
            return False
        if types[output] in dtypes.WHOLE_NUMBERS and node.definition.op in _OF_SHAPES:
            return True
        return output in uniform and unit.kind in (
            ClusterKind.PER_REPLICA,
            ClusterKind.VARIABLE_UPDATE,
        )

    pending = list(members)
    while pending:
        name = pending.pop()
        if name in found:
            continue
        node = found[name] = body.nodes[name]
        for each in node.inputs:
            if each.producer in members or is_repeated(each):
                pending.append(each.producer)
            else:
                inputs[each] = None
    ordered = {name: found[name] for name in body.nodes if name in found}
    return ClusterClosure(ordered, list(inputs))


# What computes shapes, and indices into them, from shapes. Their inputs may be anything.
_OF_SHAPES = frozenset(
    """
    Add AddV2 BroadcastArgs BroadcastGradientArgs Cast Concat ConcatOffset ConcatV2 DynamicStitch
    Equal ExpandDims Fill FloorDiv FloorMod Gather GatherV2 Greater GreaterEqual Identity
    InvertPermutation Less LessEqual LogicalAnd LogicalNot LogicalOr Max Maximum Min Minimum Mod
    Mul Neg NotEqual OnesLike Pack Prod Range Rank RealDiv Reshape Reverse ReverseV2 Select
    SelectV2 Shape ShapeN Size Slice Split Squeeze StridedSlice Sub Sum Tile TruncateDiv Unpack
    Where ZerosLike
    """.split()  # noqa: SIM905
)


def live_out_values(
    unit: Cluster, closures: Iterable[ClusterClosure], body: GraphIR
) -> dict[Value, None]:
    """The outputs of a unit that others, or the caller of the body, want."""
    members = {each.name for each in unit.nodes}
    wanted = [each for closure in closures for each in closure.inputs] + body.results
    return {each: None for each in wanted if each.producer in members}
