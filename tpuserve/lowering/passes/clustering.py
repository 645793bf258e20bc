"""Clustering: divides the graph of a TPU computation into clusters, which XLA compiles separately.

Without a TPU, all replicas of a computation are in one graph. XLA cannot compile this graph as a
whole, because the replicas communicate in it.

* SINGLE_OP: a single op that XLA does not compile together with others. Among them are infeed and
  outfeed ops, collectives, outside-compiled ops, loops and branches that contain such ops, plain
  reads of variables, updates of embedding tables that are divided among the replicas, and loops and
  branches that update variables and have results that differ between replicas;
* INVARIANT: nodes whose values are the same on all replicas; the cluster runs once;
* PER_REPLICA: nodes whose values differ between replicas; the cluster runs once for each replica;
* VARIABLE_UPDATE: updates of variables; the cluster runs once, with the values of replica 0;
* REPLICA_UPDATE: updates of variables of which each replica has its own; it runs once for each.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from tpuserve.graph import row_sharding
from tpuserve.lowering.ir import graph_ir, op_defs
from tpuserve.lowering.ir.graph_ir import GraphIR, Node, Value
from tpuserve.lowering.rules import op_traits
from tpuserve.lowering.rules.op_spec import OpKind
from tpuserve.lowering.rules.op_table import op_spec
from tpuserve.saved_model import dtypes

if TYPE_CHECKING:
    from tpuserve.lowering.ir.op_defs import Library

_FORWARDING_KINDS = (OpKind.IDENTITY, OpKind.SWITCH_MERGE)

# Types of the ops that may compute a shape, or indices into a shape, if their outputs are integers.
# XLA must see such ops in the cluster that uses the shape.
_SHAPE_OPS = frozenset(
    """
    Add AddV2 BroadcastArgs BroadcastGradientArgs Cast Concat ConcatOffset ConcatV2 DynamicStitch
    Equal ExpandDims Fill FloorDiv FloorMod Gather GatherV2 Greater GreaterEqual Identity
    InvertPermutation Less LessEqual LogicalAnd LogicalNot LogicalOr Max Maximum Min Minimum Mod
    Mul Neg NotEqual OnesLike Pack Prod Range Rank RealDiv Reshape Reverse ReverseV2 Select
    SelectV2 Shape ShapeN Size Slice Split Squeeze StridedSlice Sub Sum Tile TruncateDiv Unpack
    Where ZerosLike
    """.split()  # noqa: SIM905
)


class ClusterKind(IntEnum):
    """The kind of a cluster of nodes, which decides whether the cluster runs once or per replica.

    The module's docstring describes the kinds. Among clusters of the same level (a number that
    orders clusters), clusters of a kind with a smaller value run first.
    """

    SINGLE_OP = 0
    INVARIANT = 1
    PER_REPLICA = 2
    VARIABLE_UPDATE = 3
    REPLICA_UPDATE = 4


@dataclass
class Cluster:
    """Nodes that run together, as one function, or a single op that is not put into a function."""

    kind: ClusterKind
    level: int
    nodes: list[Node] = field(default_factory=list)


def partition_into_clusters(
    graph: GraphIR,
    invariant: set[Value],
    library: "Library",
    split_nodes: Container[str] = (),
) -> list[Cluster]:
    """Divide the nodes of a graph into clusters, sorted in the order in which the clusters run.

    Constants belong to no cluster: each cluster that uses a constant has a copy of its own.

    Args:
      library: function name → FunctionDef.
      split_nodes: names of loops and branches that must be SINGLE_OP clusters, as found by
        `replica_invariance.must_split`.
    """
    clusters: dict[tuple[int, ClusterKind], Cluster] = {}
    single_ops: list[Cluster] = []
    assigned: dict[str, tuple[int, ClusterKind]] = {}
    types = graph_ir.value_types(graph, library)
    for node in graph.nodes.values():
        if op_traits.is_constant(node.definition):
            continue
        kind = (
            ClusterKind.SINGLE_OP
            if node.name in split_nodes
            else _cluster_kind(node, invariant, types, library)
        )
        before = [assigned[name] for name in graph_ir.predecessors(node) if name in assigned]
        level = _least_level(kind, before)
        if kind is ClusterKind.INVARIANT and _least_level(ClusterKind.PER_REPLICA, before) < level:
            # Run the node on each replica, although its values are the same on all of them. An
            # INVARIANT cluster could run it only after the PER_REPLICA cluster of its inputs.
            kind = ClusterKind.PER_REPLICA
            level = _least_level(kind, before)
        assigned[node.name] = (level, kind)
        if kind is ClusterKind.SINGLE_OP:
            single_ops.append(Cluster(kind, level, [node]))
        else:
            clusters.setdefault((level, kind), Cluster(kind, level)).nodes.append(node)
    return sorted(
        [*single_ops, *clusters.values()], key=lambda cluster: (cluster.level, cluster.kind)
    )


def _least_level(kind: ClusterKind, before: Iterable[tuple[int, ClusterKind]]) -> int:
    return max((level + (other > kind) for level, other in before), default=0)


def _cluster_kind(
    node: Node, invariant: set[Value], types: Mapping[Value, int], library: "Library"
) -> ClusterKind:
    definition = node.definition
    if (
        op_traits.is_lowered_jointly(definition, library)
        or not op_spec(node.op).is_clustered
        or row_sharding.ATTRIBUTE in definition.attr
        or _forwards_handle(node, library)
    ):
        return ClusterKind.SINGLE_OP
    if op_traits.writes_variable(definition, library):
        has_own = any(
            op_defs.is_handle(types[value]) and value not in invariant for value in node.inputs
        )
        return ClusterKind.REPLICA_UPDATE if has_own else ClusterKind.VARIABLE_UPDATE
    is_invariant = all(value in invariant for value in node.inputs) and not op_traits.is_random(
        definition, library
    )
    return ClusterKind.INVARIANT if is_invariant else ClusterKind.PER_REPLICA


def _forwards_handle(node: Node, library: "Library") -> bool:
    return op_spec(node.op).kind in _FORWARDING_KINDS and any(
        op_defs.is_handle(dtype) for _, dtype in op_defs.node_outputs(node.definition, library)
    )


@dataclass
class ClusterClosure:
    """The nodes of a cluster, and nodes of earlier clusters that the cluster computes again.

    Attributes:
      nodes: name → node, in topological order. A node of an earlier cluster is among them if this
        is cheaper than to pass its output to the cluster, or if XLA needs it to infer a shape.
    """

    nodes: dict[str, Node]
    inputs: list[Value]


def close_over_shapes(
    cluster: Cluster,
    graph: GraphIR,
    types: Mapping[Value, int],
    invariant: set[Value],
    library: "Library",
) -> ClusterClosure:
    """Return the nodes of a cluster together with other nodes that it computes again.

    If the shape of a result is the output of other nodes, as for Reshape, XLA must see these nodes
    in the cluster to infer the shape.

    Args:
      library: function name → FunctionDef.
    """
    members = {node.name for node in cluster.nodes}
    closed: dict[str, Node] = {}
    inputs: dict[Value, None] = {}

    def is_repeated(value: Value) -> bool:
        node = graph.nodes.get(value.producer)
        if node is None or op_defs.is_stateful(node.definition, library):
            return False
        if op_traits.is_constant(node.definition):
            return True
        if op_traits.is_lowered_jointly(node.definition, library):
            return False
        if types[value] in dtypes.WHOLE_NUMBERS and node.op in _SHAPE_OPS:
            return True
        return value in invariant and cluster.kind is not ClusterKind.INVARIANT

    pending = list(members)
    while pending:
        name = pending.pop()
        if name in closed:
            continue
        node = closed[name] = graph.nodes[name]
        for value in node.inputs:
            if value.producer in members or is_repeated(value):
                pending.append(value.producer)
            else:
                inputs[value] = None
    ordered = {name: closed[name] for name in graph.nodes if name in closed}
    return ClusterClosure(ordered, list(inputs))


def live_out_values(
    cluster: Cluster, closures: Iterable[ClusterClosure], graph: GraphIR
) -> list[Value]:
    """Return the node outputs of a cluster that are used outside of it."""
    members = {node.name for node in cluster.nodes}
    used = [value for closure in closures for value in closure.inputs] + graph.results
    return list(dict.fromkeys(value for value in used if value.producer in members))
