"""Inlines calls of functions that update a variable or communicate with the host or other replicas.

The nodes of such a function run differently: some once for all replicas, and others once for each
replica. A single call cannot do both.
"""

import dataclasses
from typing import TYPE_CHECKING

from tpuserve.lowering.ir import graph_ir
from tpuserve.lowering.ir.graph_ir import GraphIR, Node, Value
from tpuserve.lowering.ir.inlining import inline_call
from tpuserve.lowering.rules import op_traits
from tpuserve.lowering.rules.op_spec import OpKind
from tpuserve.lowering.rules.op_table import op_spec

if TYPE_CHECKING:
    from tpuserve.lowering.ir.op_defs import Library


def inlined_function_body(name: str, library: "Library") -> GraphIR:
    """Return the body of a function, in which `inline_effectful_calls` has inlined calls."""
    return inline_effectful_calls(graph_ir.from_function_def(library[name], library), library)


def inline_effectful_calls(graph: GraphIR, library: "Library") -> GraphIR:
    """Inline the calls that update a variable or communicate with the host or other replicas.

    Such calls inside of the inlined functions are inlined too.
    """
    while True:
        calls = [node for node in graph.nodes.values() if _is_effectful_call(node, library)]
        if not calls:
            return graph
        nodes = dict(graph.nodes)
        replacements: dict[Value, Value] = {}
        for call in calls:
            function = call.definition.attr["f"].func.name
            replacements |= inline_call(call, function, nodes, library, f"{call.name}/inlined")
        graph = dataclasses.replace(
            graph,
            nodes=graph_ir.topological_order(
                dataclasses.replace(
                    node, inputs=[graph_ir.resolve(value, replacements) for value in node.inputs]
                )
                for node in nodes.values()
            ),
            results=[graph_ir.resolve(value, replacements) for value in graph.results],
        )


def _is_effectful_call(node: Node, library: "Library") -> bool:
    definition = node.definition
    return (
        op_spec(node.op).kind is OpKind.CALL
        and not op_traits.is_on_host(definition)
        and (
            op_traits.is_lowered_jointly(definition, library)
            or op_traits.writes_variable(definition, library)
        )
    )
