"""Determines which nodes a signature runs, and which of these nodes run on the TPU."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tpuserve.graph.graph_walk import (
    HOST_ATTRIBUTE,
    TPU_CALL,
    called_functions,
    outside_cluster_mask,
)
from tpuserve.graph.references import node_name
from tpuserve.graph.traversal import find_reachable


@dataclass(frozen=True)
class PlacedNode:
    """A node that a signature runs, with its function and its device.

    Attributes:
      function: Name of the function that has the node; empty for the main graph.
      computation: Name of the TPU computation that runs the node: the function that a
        TPUPartitionedCall op calls. Empty for nodes outside of TPU computations.
    """

    node: Any
    function: str
    computation: str
    on_tpu: bool


def place_nodes(meta_graph_def: Any, signature_name: str) -> list[PlacedNode]:
    """Return the nodes that a signature runs: all that its outputs depend on.

    The nodes of called functions are included.
    """
    graph_def = meta_graph_def.graph_def
    functions = {function.signature.name: function for function in graph_def.library.function}
    outputs = meta_graph_def.signature_def[signature_name].outputs.values()
    placed = [
        PlacedNode(node, "", "", on_tpu=False)
        for node in _reachable_nodes(graph_def.node, (output.name for output in outputs))
    ]
    visited: set[tuple[str, str, bool]] = set()
    pending = deque(placed)
    while pending:
        caller = pending.popleft()
        for name in {*called_functions(caller.node), caller.node.op} & functions.keys():
            is_computation = caller.node.op == TPU_CALL and not caller.on_tpu
            computation = name if is_computation else caller.computation
            on_tpu = caller.on_tpu or is_computation
            if (name, computation, on_tpu) not in visited:
                visited.add((name, computation, on_tpu))
                inner = list(
                    _place_function(
                        functions[name], computation, on_tpu, is_outermost=is_computation
                    )
                )
                placed += inner
                pending += inner
    return placed


def _place_function(
    function: Any, computation: str, on_tpu: bool, *, is_outermost: bool
) -> Iterator[PlacedNode]:
    """Yield the nodes that a called function runs: all that its results depend on."""
    results = [*function.ret.values(), *function.control_ret.values()]
    nodes = function.node_def
    is_outside = outside_cluster_mask(nodes) if is_outermost else [False] * len(nodes)
    outside = {node.name for node, outside in zip(nodes, is_outside, strict=True) if outside}
    for node in _reachable_nodes(nodes, results):
        is_on_host = HOST_ATTRIBUTE in node.attr or node.name in outside
        yield PlacedNode(node, function.signature.name, computation, on_tpu and not is_on_host)


def _reachable_nodes(nodes: Iterable[Any], results: Iterable[str]) -> list[Any]:
    """Return the nodes on which some tensors depend, in the order of the graph."""
    by_name: Mapping[str, Any] = {node.name: node for node in nodes}

    reachable = find_reachable(
        map(node_name, results),
        lambda name: map(node_name, by_name[name].input) if name in by_name else None,
    )
    return [node for node in by_name.values() if node.name in reachable]
