"""A body without what only stands in the way of cutting it into units."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tpuserve.lowering.ir import graph_ir, op_traits
from tpuserve.lowering.ir.graph_ir import GraphIR, Node, Value
from tpuserve.lowering.passes import clustering
from tpuserve.lowering.passes.inlining import inline_effectful_calls

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef


def canonicalize_graph(body: GraphIR, library: "Mapping[str, FunctionDef]") -> GraphIR:
    """The body without what has no effect: identities, dead nodes, and waiting for pure nodes.

    Calls that would hide an effect are in line.
    """
    waits = _with_waits_for_effects(inline_effectful_calls(body, library), library)
    return _without_dead_nodes(_without_identities(waits), library)


def _with_waits_for_effects(body: GraphIR, library: "Mapping[str, FunctionDef]") -> GraphIR:
    """The body with control inputs only between nodes that have an effect, or see one.

    Gradients wait for each other by the dozen, so that they end up together; where what they
    wait for is pure, that says nothing, and would cut computations into slices. To wait for a
    pure node is to wait for what it needs. A pure node that was told to wait hands that on to
    whoever uses it: often TensorFlow tells it to a constant, and not to the update that adds it.
    """
    effects: dict[str, frozenset[str]] = {}
    waits: dict[str, dict[str, None]] = {}
    wanted = {*body.kept, *(each.producer for each in body.results)}
    nodes = {}
    for node in body.nodes.values():
        has_effect = _has_effect(node, library)
        if has_effect:
            effects[node.name] = frozenset((node.name,))
        else:
            effects[node.name] = frozenset().union(
                *(effects.get(each, ()) for each in graph_ir.predecessors(node))
            )
        # What is outside of the body is waited for as it is.
        own = dict.fromkeys(
            name
            for each in node.controls
            for name in (sorted(effects[each]) if each in body.nodes else [each])
        )
        for each in node.inputs:
            own.update(waits.get(each.producer, {}))
        if not has_effect:
            waits[node.name] = own
        is_told = has_effect or node.name in wanted
        nodes[node.name] = dataclasses.replace(node, controls=list(own) if is_told else [])
    return dataclasses.replace(body, nodes=graph_ir.topological_order(nodes.values()))


def _has_effect(node: Node, library: "Mapping[str, FunctionDef]") -> bool:
    return op_traits.is_stateful(node.definition, library) or op_traits.communicates(
        node.definition, library
    )


def look_through_identities(output: Value, body: GraphIR) -> Value:
    """What an output is once identities are looked through."""
    node = body.nodes.get(output.producer)
    while node is not None and _is_mere_identity(node):
        output = node.inputs[0]
        node = body.nodes.get(output.producer)
    return output


def _is_mere_identity(node: Node) -> bool:
    return (
        node.definition.op == "Identity" and not node.controls and not clustering.is_on_host(node)
    )


def _without_identities(body: GraphIR) -> GraphIR:
    nodes = {
        each.name: Node(
            each.name,
            each.definition,
            [look_through_identities(one, body) for one in each.inputs],
            [
                look_through_identities(Value(one), body).producer if one in body.nodes else one
                for one in each.controls
            ],
        )
        for each in body.nodes.values()
        if not _is_mere_identity(each)
    }
    results = [look_through_identities(each, body) for each in body.results]
    kept = [look_through_identities(Value(each), body).producer for each in body.kept]
    return dataclasses.replace(
        body, nodes=graph_ir.topological_order(nodes.values()), results=results, kept=kept
    )


def _without_dead_nodes(body: GraphIR, library: "Mapping[str, FunctionDef]") -> GraphIR:
    pending = [
        *(each.producer for each in body.results),
        *body.kept,
        *(
            each.name
            for each in body.nodes.values()
            if op_traits.writes_variable(each.definition, library)
            or (
                op_traits.communicates(each.definition, library)
                and each.definition.op not in op_traits.COLLECTIVES
            )
        ),
    ]
    alive: set[str] = set()
    while pending:
        name = pending.pop()
        if name in alive or name not in body.nodes:
            continue
        alive.add(name)
        pending.extend(graph_ir.predecessors(body.nodes[name]))
    nodes = {name: node for name, node in body.nodes.items() if name in alive}
    return dataclasses.replace(body, nodes=nodes)
