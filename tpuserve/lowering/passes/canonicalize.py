"""Canonicalisation: simplifies the graph of a TPU computation before XLA clusters are chosen.

It inlines calls that have side effects, and removes Identity ops, dead nodes and needless control
inputs.
"""

import dataclasses
from typing import TYPE_CHECKING

from tpuserve.lowering.ir import graph_ir, op_defs
from tpuserve.lowering.ir.graph_ir import GraphIR, Node, Value
from tpuserve.lowering.passes.inlining import inline_effectful_calls
from tpuserve.lowering.rules import op_traits
from tpuserve.lowering.rules.op_spec import OpKind
from tpuserve.lowering.rules.op_table import op_spec

if TYPE_CHECKING:
    from tpuserve.lowering.ir.op_defs import Library


def canonicalize_graph(graph: GraphIR, library: "Library") -> GraphIR:
    """Simplify the graph of a TPU computation.

    Calls that update a variable, or communicate with the host or other replicas, are inlined.

    Args:
      library: function name → FunctionDef.
    """
    inlined = inline_effectful_calls(graph, library)
    return _remove_dead_nodes(
        _remove_identities(_move_controls_to_effects(inlined, library)), library
    )


def _move_controls_to_effects(graph: GraphIR, library: "Library") -> GraphIR:
    """Replace control inputs by control inputs between nodes that have side effects."""
    # Node name → names of the nodes that replace the node as a control input: the node itself if it
    # has a side effect, else the nodes with side effects that it depends on.
    effects: dict[str, frozenset[str]] = {}
    # Name of a node without side effects → its control inputs, which are moved to the nodes that
    # use its outputs.
    inherited: dict[str, dict[str, None]] = {}
    returned = {*graph.control_outputs, *(value.producer for value in graph.results)}
    nodes = {}
    for node in graph.nodes.values():
        has_effect = _has_effect(node, library)
        if has_effect:
            effects[node.name] = frozenset((node.name,))
        else:
            effects[node.name] = frozenset().union(
                *(effects.get(name, ()) for name in graph_ir.predecessors(node))
            )
        # Keep a control input from a node that is not in this graph: it is a node outside of the
        # TPU computation.
        controls = dict.fromkeys(
            effect
            for name in node.controls
            for effect in (sorted(effects[name]) if name in graph.nodes else [name])
        )
        for value in node.inputs:
            controls.update(inherited.get(value.producer, {}))
        if not has_effect:
            inherited[node.name] = controls
        keeps_controls = has_effect or node.name in returned
        nodes[node.name] = dataclasses.replace(
            node, controls=list(controls) if keeps_controls else []
        )
    return dataclasses.replace(graph, nodes=graph_ir.topological_order(nodes.values()))


def _has_effect(node: Node, library: "Library") -> bool:
    return op_defs.is_stateful(node.definition, library) or op_traits.communicates(
        node.definition, library
    )


def _look_through_identities(value: Value, graph: GraphIR) -> Value:
    """Return the node output that a chain of Identity ops forwards."""
    node = graph.nodes.get(value.producer)
    while node is not None and _is_removable_identity(node):
        value = node.inputs[0]
        node = graph.nodes.get(value.producer)
    return value


def _is_removable_identity(node: Node) -> bool:
    return (
        op_spec(node.op).kind is OpKind.IDENTITY
        and len(node.inputs) == 1
        and not node.controls
        and not op_traits.is_on_host(node.definition)
    )


def _remove_identities(graph: GraphIR) -> GraphIR:
    nodes = {
        node.name: Node(
            node.name,
            node.definition,
            [_look_through_identities(value, graph) for value in node.inputs],
            [
                _look_through_identities(Value(name), graph).producer
                if name in graph.nodes
                else name
                for name in node.controls
            ],
        )
        for node in graph.nodes.values()
        if not _is_removable_identity(node)
    }
    return dataclasses.replace(
        graph,
        nodes=graph_ir.topological_order(nodes.values()),
        results=[_look_through_identities(value, graph) for value in graph.results],
        control_outputs=[
            _look_through_identities(Value(name), graph).producer for name in graph.control_outputs
        ],
    )


def _remove_dead_nodes(graph: GraphIR, library: "Library") -> GraphIR:
    running = [
        *(value.producer for value in graph.results),
        *graph.control_outputs,
        *(
            node.name
            for node in graph.nodes.values()
            if op_traits.must_run(node.definition, library)
        ),
    ]
    needed = graph_ir.find_needed(graph.nodes, running)
    nodes = {name: node for name, node in graph.nodes.items() if name in needed}
    return dataclasses.replace(graph, nodes=nodes)
