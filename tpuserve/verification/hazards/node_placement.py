"""Which nodes a signature runs, and which of them on a TPU."""

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


@dataclass(frozen=True)
class PlacedNode:
    """A node that runs.

    Attributes:
      node: TensorFlow's NodeDef.
      function: the function that holds it; empty for the main graph.
      computation: the function that is the TPU computation around it; empty outside of any.
      on_tpu: whether the TPU runs it; within a computation, the host may.
    """

    node: Any
    function: str
    computation: str
    on_tpu: bool


def place_nodes(meta_graph_def: Any, signature_name: str) -> list[PlacedNode]:
    """The nodes that the outputs of a signature need, those of called functions included.

    Args:
      meta_graph_def: TensorFlow's MetaGraphDef.
      signature_name: one of its signatures.
    """
    graph_def = meta_graph_def.graph_def
    functions = {each.signature.name: each for each in graph_def.library.function}
    outputs = meta_graph_def.signature_def[signature_name].outputs.values()
    found = [
        PlacedNode(each, "", "", on_tpu=False)
        for each in _needed(graph_def.node, (each.name for each in outputs))
    ]
    entered: set[tuple[str, str, bool]] = set()
    pending = deque(found)
    while pending:
        caller = pending.popleft()
        for name in {*called_functions(caller.node), caller.node.op} & functions.keys():
            is_computation = caller.node.op == TPU_CALL and not caller.on_tpu
            computation = name if is_computation else caller.computation
            key = name, computation, caller.on_tpu or is_computation
            if key not in entered:
                entered.add(key)
                inner = list(_of_function(functions[name], *key[1:], is_outermost=is_computation))
                found += inner
                pending += inner
    return found


def _of_function(
    function: Any, computation: str, on_tpu: bool, *, is_outermost: bool
) -> Iterator[PlacedNode]:
    results = [*function.ret.values(), *function.control_ret.values()]
    body = function.node_def
    beside = outside_cluster_mask(body) if is_outermost else [False] * len(body)
    beside_names = {node.name for node, is_so in zip(body, beside, strict=True) if is_so}
    for node in _needed(body, results):
        is_beside = HOST_ATTRIBUTE in node.attr or node.name in beside_names
        yield PlacedNode(node, function.signature.name, computation, on_tpu and not is_beside)


def _needed(nodes: Iterable[Any], results: Iterable[str]) -> list[Any]:
    """The nodes that results need, in the order in which they stand in the graph."""
    by_name: Mapping[str, Any] = {each.name: each for each in nodes}
    needed: set[str] = set()
    pending = [each.partition(":")[0] for each in results]
    while pending:
        name = pending.pop()
        if name in by_name and name not in needed:
            needed.add(name)
            pending += [each.lstrip("^").partition(":")[0] for each in by_name[name].input]
    return [each for each in by_name.values() if each.name in needed]
