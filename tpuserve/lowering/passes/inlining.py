"""Inlines calls of functions that update a variable or communicate with the host or other replicas.

The nodes of such a function run differently: some once for all replicas, and others once for each
replica. A single call cannot do both. The call is therefore replaced by the nodes of the function,
which are then treated like all other nodes of the graph.
"""

import dataclasses
from typing import TYPE_CHECKING

from tpuserve.lowering.ir import graph_ir
from tpuserve.lowering.ir.graph_ir import GraphIR, Node, Value
from tpuserve.lowering.rules import op_traits
from tpuserve.lowering.rules.op_spec import OpKind
from tpuserve.lowering.rules.op_table import op_spec

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from tpuserve.lowering.ir.op_defs import Library


def inlined_function_body(name: str, library: "Library") -> GraphIR:
    """Return the body of a function, in which `inline_effectful_calls` has inlined calls."""
    return inline_effectful_calls(graph_ir.from_function_def(library[name], library), library)


def inline_effectful_calls(graph: GraphIR, library: "Library") -> GraphIR:
    """Inline the calls that update a variable or communicate with the host or other replicas.

    Such calls inside of the inlined functions are inlined too. A NoOp, which runs after the inlined
    nodes, takes the name of the call, because the call may be a control input of other nodes.
    """
    while True:
        calls = [node for node in graph.nodes.values() if _is_effectful_call(node, library)]
        if not calls:
            return graph
        nodes = dict(graph.nodes)
        replacements: dict[Value, Value] = {}
        for call in calls:
            replacements |= _inline_call(call, nodes, library)

        def replaced(value: Value, replacements: dict[Value, Value] = replacements) -> Value:
            while value in replacements:
                value = replacements[value]
            return value

        graph = dataclasses.replace(
            graph,
            nodes=graph_ir.topological_order(
                dataclasses.replace(node, inputs=[replaced(value) for value in node.inputs])
                for node in nodes.values()
            ),
            results=[replaced(value) for value in graph.results],
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


def _inline_call(call: Node, nodes: dict[str, Node], library: "Library") -> dict[Value, Value]:
    """Add the nodes of a called function to `nodes`, and replace the call by a NoOp.

    Returns:
      Output of the call → the output of an inlined node that has the same value.
    """
    body = graph_ir.from_function_def(library[call.definition.attr["f"].func.name], library)
    arguments = {
        Value(name): value for name, value in zip(body.arguments, call.inputs, strict=True)
    }

    def inlined_name(name: str) -> str:
        return f"{call.name}/inlined/{name}"

    def inlined_value(value: Value) -> Value:
        return arguments.get(value, Value(inlined_name(value.producer), value.output_index))

    for node in body.nodes.values():
        nodes[inlined_name(node.name)] = Node(
            inlined_name(node.name),
            node.definition,
            [inlined_value(value) for value in node.inputs],
            [*call.controls, *(inlined_name(name) for name in node.controls)],
        )
    results = [inlined_value(value) for value in body.results]
    controls = [
        *call.controls,
        *(value.producer for value in (*call.inputs, *results) if value.producer in nodes),
        *(inlined_name(name) for name in body.control_outputs),
    ]
    nodes[call.name] = Node(call.name, _no_op(), controls=list(dict.fromkeys(controls)))
    return {Value(call.name, index): result for index, result in enumerate(results)}


def _no_op() -> "NodeDef":
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    return NodeDef(op="NoOp")
