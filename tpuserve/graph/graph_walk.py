"""Walks over a graph and the functions that it calls, and tells where each node runs."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tpuserve.graph.traversal import find_reachable
from tpuserve.proto import saved_model_pb2 as pb

# The attribute of a node that belongs to an outside compilation, which the host runs.
HOST_ATTRIBUTE = "_xla_outside_compilation"
# The op that calls a TPU computation.
TPU_CALL = "TPUPartitionedCall"
FUNCTION_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
"""The ops that call a function on the device of the caller."""
# The op that describes the replicas of a computation.
REPLICATE_METADATA = "TPUReplicateMetadata"

# The attribute of a node in the cluster that `tpu.rewrite` built; its value is the cluster's name.
# The nodes of the functions that the cluster calls do not have the attribute.
CLUSTER_ATTRIBUTE = "_tpu_replicate"

# Ops that `tpu.rewrite` puts around the cluster that it builds. They compute nothing, and therefore
# do not count as nodes outside of the cluster, which the host runs.
_FORWARDING_OPS = frozenset({"Identity", "NoOp"})

Functions = Mapping[str, pb.FunctionDef]


@dataclass(frozen=True)
class NodesByDevice:
    """The nodes that a walk over a graph has visited, by the device that runs them.

    Attributes:
      on_tpu, on_host: the nodes that the TPU and the host run. The nodes of a function come after a
        node that calls the function, and only once, however often the function is called.
      tpu_calls: names of the functions that TPUPartitionedCalls on the host call, each once.
    """

    on_tpu: list[pb.NodeDef]
    on_host: list[pb.NodeDef]
    tpu_calls: list[str]


def walk_graph(graph: pb.GraphDef, functions: Functions) -> NodesByDevice:
    """Visit the nodes that the host runs in a graph and its functions; skip TPU computations.

    Args:
      graph: the main graph.
      functions: function name → function.
    """
    return _walk(((node, True) for node in graph.node), functions)


def walk_function(name: str, functions: Functions) -> NodesByDevice:
    """Visit the nodes of a function that the host calls; none if `functions` lacks the function."""
    body = functions[name].node_def if name in functions else []
    return _walk(((node, True) for node in body), functions)


def walk_computation(name: str, functions: Functions) -> NodesByDevice:
    """Visit the nodes of a TPU computation.

    Args:
      name: the name of the computation's function; no node is visited if `functions` lacks it.
      functions: function name → function.
    """
    body = functions[name].node_def if name in functions else []
    return _walk(zip(body, outside_cluster_mask(body), strict=True), functions)


def called_functions(node: Any) -> Iterator[str]:
    """Yield the names of the functions that a NodeDef refers to in its attributes."""
    for attribute in node.attr.values():
        kind = attribute.WhichOneof("value")
        if kind == "func":
            yield attribute.func.name
        elif kind == "list":
            yield from (function.name for function in attribute.list.func)


def find_called_functions(nodes: Iterable[Any], functions: Mapping[str, Any]) -> set[str]:
    """Return the names of the functions that some nodes call, directly or indirectly.

    Args:
      nodes: NodeDefs.
      functions: function name → FunctionDef; other functions are not returned.
    """
    return find_reachable(
        possible_calls(nodes),
        lambda name: possible_calls(functions[name].node_def) if name in functions else None,
    )


def possible_calls(nodes: Iterable[Any]) -> set[str]:
    """Return all names in some nodes that may be names of functions that the nodes call.

    These are the functions in the attributes of the nodes, and the op types of the nodes: a node
    whose op type is the name of a function calls the function.
    """
    return {name for node in nodes for name in (node.op, *called_functions(node))}


def skip_identities(reference: str, nodes: Mapping[str, Any]) -> str:
    """Follow Identity ops back from a tensor; return the tensor that they forward.

    Args:
      reference: the name of the tensor, as the inputs of nodes have it.
      nodes: node name → NodeDef, of the graph or the body of a function.
    """
    node = nodes.get(reference.partition(":")[0])
    while node is not None and node.op == "Identity":
        reference = node.input[0]
        node = nodes.get(reference.partition(":")[0])
    return reference


def outside_cluster_mask(body: Iterable[Any]) -> list[bool]:
    """Return, for each node of a TPU computation, whether it is outside of the cluster.

    The host runs the nodes outside of the cluster that `tpu.rewrite` built. A function without a
    cluster was not built by `tpu.rewrite`; the TPU runs all of it.

    Args:
      body: the NodeDefs of the computation's function, either TensorFlow's or `tpuserve.proto`'s.
    """
    nodes = list(body)
    has_cluster = any(CLUSTER_ATTRIBUTE in node.attr for node in nodes)
    return [has_cluster and _is_outside_cluster(node) for node in nodes]


def _is_outside_cluster(node: Any) -> bool:
    is_frame = (
        node.op in _FORWARDING_OPS
        or node.op.startswith("TPUReplicate")
        or node.op == "TPUCompilationResult"
    )
    return not (CLUSTER_ATTRIBUTE in node.attr or is_frame)


def _walk(start: Iterable[tuple[pb.NodeDef, bool]], functions: Functions) -> NodesByDevice:
    """Visit nodes and the nodes of the functions that they call.

    Args:
      start: pairs of a node and whether the host runs the node. The functions that a node calls run
        on the same device as the node.
      functions: function name → function.
    """
    visited = NodesByDevice([], [], [])
    entered: set[tuple[str, bool]] = set()
    # Use no recursion: functions may be nested deeper than Python's stack, and may call each other
    # in a cycle.
    pending = deque(start)
    while pending:
        node, on_host = pending.popleft()
        on_host = on_host or HOST_ATTRIBUTE in node.attr
        (visited.on_host if on_host else visited.on_tpu).append(node)
        if on_host and node.op == TPU_CALL:
            visited.tpu_calls.append(node.attr["f"].func.name)
            continue
        for name in called_functions(node):
            if name in functions and (name, on_host) not in entered:
                entered.add((name, on_host))
                pending.extend((inner, on_host) for inner in functions[name].node_def)
    visited.tpu_calls[:] = dict.fromkeys(visited.tpu_calls)
    return visited
