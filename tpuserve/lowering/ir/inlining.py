"""Inlines calls: replaces a node that calls a function by the nodes of the function."""

from typing import TYPE_CHECKING

from tpuserve.lowering.ir import graph_ir
from tpuserve.lowering.ir.graph_ir import Node, Value

if TYPE_CHECKING:
    from tpuserve.lowering.ir.op_defs import Library


def inline_call(
    call: Node, function: str, nodes: dict[str, Node], library: "Library", scope: str
) -> dict[Value, Value]:
    """Replace a function call in a graph by the nodes of the called function.

    The call itself becomes a NoOp of the same name, which runs after these nodes, because other
    nodes may have the call as a control input.

    Args:
      nodes: name → node of the graph; changed in place.
    """
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    body = graph_ir.from_function_def(library[function], library)
    arguments = {
        Value(name): value for name, value in zip(body.arguments, call.inputs, strict=True)
    }
    names: dict[str, str] = {}
    for name, node in body.nodes.items():
        names[name] = graph_ir.unused_name(f"{scope}/{name}", nodes)
        nodes[names[name]] = node

    def map_value(value: Value) -> Value:
        return arguments.get(value) or Value(names[value.producer], value.output_index)

    for name, node in body.nodes.items():
        controls = [
            *call.controls,
            *(names[control] for control in node.controls if control in names),
        ]
        inputs = [map_value(value) for value in node.inputs]
        nodes[names[name]] = Node(names[name], node.definition, inputs, controls)
    results = [map_value(value) for value in body.results]
    awaited = [
        *call.controls,
        *(value.producer for value in (*call.inputs, *results) if value.producer in nodes),
        *(names[name] for name in body.control_outputs),
    ]
    no_op = NodeDef(op="NoOp")
    nodes[call.name] = Node(call.name, no_op, controls=list(dict.fromkeys(awaited)))
    return {Value(call.name, index): result for index, result in enumerate(results)}
