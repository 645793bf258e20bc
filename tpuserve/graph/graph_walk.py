"""Visits the nodes of a graph and its functions, and finds whether the host or TPU runs them."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tpuserve.graph.references import node_name, tensor_name
from tpuserve.graph.traversal import find_reachable
from tpuserve.proto import saved_model_pb2 as pb

# The attribute of an outside-compiled node: the host runs it, although it is in a TPU computation.
HOST_ATTRIBUTE = "_xla_outside_compilation"
# The type of the op that calls a function which runs on a TPU (a TPU computation).
TPU_CALL = "TPUPartitionedCall"
FUNCTION_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
"""The ops that call a function on the device of the caller."""
# The type of the op that says how many replicas a TPU computation has, and which cores run them.
REPLICATE_METADATA = "TPUReplicateMetadata"
REPLICATED_INPUT, REPLICATED_OUTPUT = "TPUReplicatedInput", "TPUReplicatedOutput"
"""The ops at the inputs and outputs of a TPU computation that `tpu.replicate` built."""

# The attribute of the nodes in an XLA cluster that `tpu.rewrite` or `tpu.replicate` built. Its
# value is the name of the cluster. Nodes of functions that the cluster calls do not have the
# attribute.
CLUSTER_ATTRIBUTE = "_tpu_replicate"

# Types of the ops that `tpu.rewrite` adds around an XLA cluster. They compute nothing, so they do
# not count as nodes that the host runs.
_FORWARDING_OPS = frozenset({"Identity", "NoOp"})

Functions = Mapping[str, pb.FunctionDef]


@dataclass(frozen=True)
class NodesByDevice:
    """The nodes of a graph or function, divided by where they run: on the TPU or on the host.

    Attributes:
      on_tpu, on_host: the nodes that the TPU runs, and those that the host runs.
    """

    on_tpu: list[pb.NodeDef]
    on_host: list[pb.NodeDef]
    tpu_calls: list[str]


def walk_graph(graph: pb.GraphDef, functions: Functions) -> NodesByDevice:
    """Visit the nodes of a graph and of its functions, but not those of TPU computations."""
    return _walk(((node, True) for node in graph.node), functions)


def walk_function(name: str, functions: Functions) -> NodesByDevice:
    """Visit the nodes of a function that the host calls, and of the functions that it calls.

    The nodes of TPU computations are not visited.
    """
    body = functions[name].node_def if name in functions else []
    return _walk(((node, True) for node in body), functions)


def walk_computation(name: str, functions: Functions) -> NodesByDevice:
    """Visit the nodes of a TPU computation, some of which the host may run."""
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
    """Return the names of the functions that some nodes call, directly or indirectly."""
    return find_reachable(
        possible_calls(nodes),
        lambda name: possible_calls(functions[name].node_def) if name in functions else None,
    )


def possible_calls(nodes: Iterable[Any]) -> set[str]:
    """Return all names in NodeDefs that may be names of called functions.

    These are the function names in attributes, and the op types.
    """
    return {name for node in nodes for name in (node.op, *called_functions(node))}


def reach_nodes(
    nodes: Mapping[str, Any], fetches: Iterable[str], feeds: frozenset[str]
) -> dict[str, None]:
    """Return the names of the nodes of a main graph that a session run executes, in a fixed order.

    Args:
      feeds: the names of the fed tensors, such as "x:0".
    """
    pending = [fetch for fetch in fetches if fetch]
    fed_nodes = set(map(node_name, feeds))
    reached: dict[str, None] = {}
    while pending:
        reference = pending.pop()
        name = node_name(reference)
        if name in reached or name not in nodes:
            continue
        # Do not follow a fed tensor: its value replaces the output of the node. A control input
        # ("^node") is followed even if the output of the node is fed.
        if name in fed_nodes and not reference.startswith("^") and tensor_name(reference) in feeds:
            continue
        reached[name] = None
        pending.extend(nodes[name].input)
    return reached


def skip_identities(reference: str, nodes: Mapping[str, Any]) -> str:
    """Return the name of the tensor that a chain of Identity nodes forwards.

    Args:
      nodes: node name → NodeDef, of the graph or the body of a function.
    """
    # Follow at most as many nodes as there are: a damaged graph can have a cycle of Identity nodes.
    for _ in nodes:
        node = nodes.get(node_name(reference))
        if node is None or node.op != "Identity":
            break
        reference = node.input[0]
    return reference


def outside_cluster_mask(body: Iterable[Any]) -> list[bool]:
    """Return, for each node of a TPU computation, whether the host runs it.

    The function of a computation holds an XLA cluster, which `tpu.rewrite` built and the TPU runs.

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
    visited = NodesByDevice([], [], [])
    entered: set[tuple[str, bool]] = set()
    # Do not use recursion: functions may be nested deeper than Python's stack allows, and may call
    # each other in a cycle.
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
