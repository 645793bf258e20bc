"""Which nodes of a graph run where, called functions included."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tpuserve.proto import saved_model_pb2 as pb

HOST_ATTRIBUTE = "_xla_outside_compilation"
TPU_CALL = "TPUPartitionedCall"
REPLICATE_METADATA = "TPUReplicateMetadata"

# A node of the cluster that `tpu.rewrite` made. It marks a function's own nodes, not those of the
# functions that these call.
CLUSTER_ATTRIBUTE = "_tpu_replicate"

# What `tpu.rewrite` puts around its cluster: it computes nothing, neither here nor there.
_PLUMBING = frozenset({"Identity", "NoOp"})

Functions = Mapping[str, pb.FunctionDef]


@dataclass(frozen=True)
class NodesByDevice:
    """The nodes that run with a graph or with a TPU computation.

    Attributes:
      on_tpu, on_host: in the order in which calls lead to them; each function once.
      tpu_calls: the functions that on_host's TPUPartitionedCalls call, each once.
    """

    on_tpu: list[pb.NodeDef]
    on_host: list[pb.NodeDef]
    tpu_calls: list[str]


def walk_graph(graph: pb.GraphDef, functions: Functions) -> NodesByDevice:
    """The nodes of a graph, all of the host's; TPU computations are named and not entered."""
    return _walk(((node, True) for node in graph.node), functions)


def walk_function(name: str, functions: Functions) -> NodesByDevice:
    """The nodes of a function that the host calls; none if there is no such function."""
    body = functions[name].node_def if name in functions else []
    return _walk(((node, True) for node in body), functions)


def walk_computation(name: str, functions: Functions) -> NodesByDevice:
    """The nodes of the TPU computation that a function is; none if there is no such function."""
    body = functions[name].node_def if name in functions else []
    return _walk(zip(body, outside_cluster_mask(body), strict=True), functions)


def called_functions(node: pb.NodeDef) -> Iterator[str]:
    """The names of the functions that a node's attributes call."""
    for attribute in node.attr.values():
        kind = attribute.WhichOneof("value")
        if kind == "func":
            yield attribute.func.name
        elif kind == "list":
            yield from (each.name for each in attribute.list.func)


def outside_cluster_mask(body: Iterable[Any]) -> list[bool]:
    """For each node of a TPU computation's function: whether the host runs it, beside the cluster.

    A function without a cluster, which `tpu.rewrite` did not make, is for the TPU as a whole.

    Args:
      body: NodeDefs, TensorFlow's or those of `tpuserve.proto`.
    """
    nodes = list(body)
    has_cluster = any(CLUSTER_ATTRIBUTE in node.attr for node in nodes)
    return [has_cluster and _is_beside_cluster(node) for node in nodes]


def _is_beside_cluster(node: Any) -> bool:
    is_plumbing = node.op in _PLUMBING or node.op.startswith("TPUReplicate")
    return not (CLUSTER_ATTRIBUTE in node.attr or is_plumbing or node.op == "TPUCompilationResult")


def _walk(start: Iterable[tuple[pb.NodeDef, bool]], functions: Functions) -> NodesByDevice:
    """Follows calls from nodes, each with whether the host runs it: its callees run there too."""
    found = NodesByDevice([], [], [])
    seen: set[tuple[str, bool]] = set()
    # No recursion: functions may be nested deeper than Python's stack, and call each other in a
    # circle.
    pending = deque(start)
    while pending:
        node, is_host = pending.popleft()
        is_host = is_host or HOST_ATTRIBUTE in node.attr
        (found.on_host if is_host else found.on_tpu).append(node)
        if is_host and node.op == TPU_CALL:
            found.tpu_calls.append(node.attr["f"].func.name)
            continue
        for name in called_functions(node):
            if name in functions and (name, is_host) not in seen:
                seen.add((name, is_host))
                pending.extend((each, is_host) for each in functions[name].node_def)
    found.tpu_calls[:] = dict.fromkeys(found.tpu_calls)
    return found
