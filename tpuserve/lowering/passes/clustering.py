"""Clustering: partitions the graph of a replica into clusters of nodes that XLA compiles whole.

Some ops are clusters of one op, because a TPU core does not run them by itself: infeed and outfeed,
collectives, outside compilations, and loops and branches that contain such ops. So are plain reads
of variables, updates of variables whose rows are divided among the replicas, and loops and branches
that update variables and whose results differ between replicas. All other nodes form up to three
clusters per level:

* INVARIANT: values that are the same on all replicas; run once;
* PER_REPLICA: values that differ between replicas; each replica runs the cluster;
* VARIABLE_UPDATE: updates of variables; run once, with the values of replica 0.

Clusters run by level. Within a level, the clusters of one op run first, and then the others in the
order above. The level of a node is the least level at which each of its predecessors is in an
earlier cluster or in the same cluster as the node. Therefore clusters never wait for each other in
a cycle.
"""

from collections.abc import Container, Iterable
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

# Ops that compute shapes, or indices into shapes, when their outputs are integers.
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
    """The kind of a cluster; see the module's docstring.

    The clusters of a level run in the order of these members.
    """

    SINGLE_OP = 0
    INVARIANT = 1
    PER_REPLICA = 2
    VARIABLE_UPDATE = 3


@dataclass
class Cluster:
    """Nodes that become one function, or a single op that stays an op.

    Attributes:
      kind: what the nodes have in common, such as that each replica runs them.
      level: the cluster runs after all clusters of lower levels; see the module's docstring.
      nodes: in topological order; a SINGLE_OP cluster has one node.
    """

    kind: ClusterKind
    level: int
    nodes: list[Node] = field(default_factory=list)


def partition_into_clusters(
    graph: GraphIR,
    invariant: set[Value],
    library: "Library",
    split_nodes: Container[str] = (),
    *,
    separates_reads: bool = False,
) -> list[Cluster]:
    """Partition a graph into clusters; a cluster comes after the clusters whose values it takes.

    The clusters run level by level, and those of a level in the order of `ClusterKind`. A node that
    takes a value from a kind later in that order is therefore on a higher level than that value.
    Constants belong to no cluster: each cluster that uses a constant has its own copy.

    Args:
      graph: the graph of one replica, from `canonicalize_graph`.
      invariant: the values that are the same on all replicas.
      library: function name → function.
      split_nodes: names of loops and branches that are clusters of one op; see
        `replica_invariance.must_split`.
      separates_reads: whether each op that reads a variable, such as a gather, is a cluster of its
        own. This is necessary if the replicas run on other devices than the variables.

    Returns:
      The clusters in the order in which they run: by level, then by kind.
    """
    clusters: dict[tuple[int, ClusterKind], Cluster] = {}
    single_ops: list[Cluster] = []
    assigned: dict[str, tuple[int, ClusterKind]] = {}
    for node in graph.nodes.values():
        if op_traits.is_constant(node.definition):
            continue
        kind = (
            ClusterKind.SINGLE_OP
            if node.name in split_nodes
            or (separates_reads and op_spec(node.op).kind is OpKind.VARIABLE_READ)
            else _cluster_kind(node, invariant, library)
        )
        before = [assigned[name] for name in graph_ir.predecessors(node) if name in assigned]
        level = _least_level(kind, before)
        if kind is ClusterKind.INVARIANT and _least_level(ClusterKind.PER_REPLICA, before) < level:
            # Let each replica run the node, although its values are the same on all replicas: an
            # INVARIANT cluster would be on a later level than a PER_REPLICA cluster, and would
            # separate the nodes before it from the nodes after it, for example activations from
            # their gradients, so that XLA could not compile them together.
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


def _cluster_kind(node: Node, invariant: set[Value], library: "Library") -> ClusterKind:
    definition = node.definition
    if (
        op_traits.is_lowered_jointly(definition, library)
        or not op_spec(node.op).is_clustered
        or row_sharding.ATTRIBUTE in definition.attr
        or _forwards_handle(node, library)
    ):
        return ClusterKind.SINGLE_OP
    if op_traits.writes_variable(definition, library):
        return ClusterKind.VARIABLE_UPDATE
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
    """The nodes of a cluster, with earlier nodes that the cluster repeats instead of taking values.

    Attributes:
      nodes: name → node, in topological order: the nodes of the cluster, and the repeated nodes. A
        node is repeated if that is cheaper than to pass its value to the cluster, or if XLA needs
        the node to infer a shape.
      inputs: the values that the cluster takes from outside.
    """

    nodes: dict[str, Node]
    inputs: list[Value]


def close_over_shapes(
    cluster: Cluster, graph: GraphIR, invariant: set[Value], library: "Library"
) -> ClusterClosure:
    """Return a cluster's nodes together with the nodes from which XLA infers their shapes.

    Where a shape is a value that other nodes compute, as for Reshape, XLA must see these nodes, so
    they are repeated inside of the cluster. So are nodes whose values are the same on all replicas:
    each core of a TPU computes them, too.

    Args:
      cluster: a cluster of several nodes.
      graph: the graph of one replica, which holds the cluster.
      invariant: the values that are the same on all replicas.
      library: function name → function.
    """
    types = graph_ir.value_types(graph, library)
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
    """Return the values of a cluster that other clusters take or that the graph returns."""
    members = {node.name for node in cluster.nodes}
    used = [value for closure in closures for value in closure.inputs] + graph.results
    return list(dict.fromkeys(value for value in used if value.producer in members))
