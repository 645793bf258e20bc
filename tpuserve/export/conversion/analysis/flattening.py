"""Flattens a graph: replaces each call of a function by the nodes of the function.

A signature that TensorFlow 2 saves is one call of a function, which calls other functions.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from tpuserve.graph.state_writes import Write, WriteFinder
from tpuserve.lowering.ir import graph_ir, op_defs
from tpuserve.lowering.ir.graph_ir import GraphIR, Node, Value
from tpuserve.lowering.ir.inlining import inline_call
from tpuserve.lowering.rules.op_spec import OpKind
from tpuserve.lowering.rules.op_table import op_spec

if TYPE_CHECKING:
    from tpuserve.lowering.ir.op_defs import Library

OBSERVERS = ("Assert", "CheckNumerics", "CheckNumericsV2", "PrintV2")
"""Ops that check or print values. XLA leaves them out."""

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")


@dataclasses.dataclass(frozen=True)
class FlatGraph:
    """The result of `flatten`: a graph in which nodes replace the calls of functions.

    Attributes:
      origins: Name of a node → name of the replaced call that the node comes from. Only the nodes
        of functions that `flatten` was asked to track are listed.
    """

    graph: GraphIR
    replacements: Mapping[Value, Value]
    origins: Mapping[str, str]


def flatten(
    graph: GraphIR, fetches: Iterable[Value], library: "Library", tracked: Collection[str] = ()
) -> FlatGraph:
    """Replace function calls in a graph by the nodes of the called functions."""
    nodes = dict(graph.nodes)
    replaced: dict[Value, Value] = {}
    origins: dict[str, str] = {}
    roots = list(fetches)
    while True:
        needed = graph_ir.find_needed(
            nodes, (graph_ir.resolve(value, replaced).producer for value in roots)
        )
        calls = {name: called_by(nodes[name], library) for name in nodes if name in needed}
        calls = {name: called for name, called in calls.items() if called}
        if not calls:
            break
        for name, called in calls.items():
            before = set(nodes)
            replaced |= inline_call(nodes[name], called, nodes, library, name)
            origin = origins.get(name) or (name if called in tracked else "")
            if origin:
                origins.update(dict.fromkeys(nodes.keys() - before, origin))
        for name, node in nodes.items():
            if any(value in replaced for value in node.inputs):
                inputs = [graph_ir.resolve(value, replaced) for value in node.inputs]
                nodes[name] = dataclasses.replace(node, inputs=inputs)
    flat = dataclasses.replace(graph, nodes=graph_ir.topological_order(nodes.values()))
    return FlatGraph(flat, replaced, origins)


def called_by(node: Node, library: "Library") -> str:
    """Return the name of the library function that a node calls; "" if it calls none."""
    name = node.definition.attr["f"].func.name if node.op in _CALLS else node.op
    return name if name in library else ""


def order_effects(graph: GraphIR, library: "Library") -> GraphIR:
    """Replace control inputs by those that order side effects, such as updates of a variable.

    In TensorFlow 2, the results of a function wait for all stateful ops of the function. Most of
    these ops only read.
    """
    effects = {node.name for node in graph.nodes.values() if find_write(node, library)}
    if effects:
        effects |= {node.name for node in graph.nodes.values() if _reads_variable(node, library)}
    awaited: dict[str, frozenset[str]] = {}
    nodes: dict[str, Node] = {}
    for node in graph.nodes.values():
        controls = _union(awaited, node.controls)
        awaited[node.name] = (
            frozenset((node.name,))
            if node.name in effects
            else controls | _union(awaited, [value.producer for value in node.inputs])
        )
        nodes[node.name] = dataclasses.replace(node, controls=sorted(controls))
    return dataclasses.replace(graph, nodes=nodes)


def _reads_variable(node: Node, library: "Library") -> bool:
    inner = op_defs.walk_calls([node.definition], library)
    return any(op_spec(inner_node.op).kind is OpKind.VARIABLE_READ for inner_node in inner)


def _union(awaited: Mapping[str, frozenset[str]], names: Iterable[str]) -> frozenset[str]:
    return frozenset[str]().union(*(awaited.get(name, frozenset()) for name in names))


def find_observer(node: Node, library: "Library") -> str:
    """Find an op such as Assert or PrintV2 in a node or in the functions that it calls.

    XLA drops ops that only check or print values.
    """
    inner = op_defs.walk_calls([node.definition], library)
    return next((inner_node.op for inner_node in inner if inner_node.op in OBSERVERS), "")


def find_write(node: Node, library: "Library") -> Write | None:
    """Return how a node, or a function that it calls, changes a state; None if it only reads."""
    return WriteFinder(library).in_nodes([node.definition])
