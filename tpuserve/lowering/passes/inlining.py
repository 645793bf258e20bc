"""A body with functions in place of the calls of them, where a call hides what must be seen.

A call that meets other replicas, or updates a variable, is more than one computation. In line its
nodes are cut like any others, and constants that one function hands to another are constants.
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tpuserve.lowering.ir import graph_ir, op_traits
from tpuserve.lowering.ir.graph_ir import GraphIR, Node, Value
from tpuserve.lowering.passes import clustering

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")


def inlined_function_body(name: str, library: "Mapping[str, FunctionDef]") -> GraphIR:
    """The body of the function of this name, with its own calls in line."""
    return inline_effectful_calls(graph_ir.from_function_def(library[name], library), library)


def inline_effectful_calls(body: GraphIR, library: "Mapping[str, FunctionDef]") -> GraphIR:
    """The body with calls in line, at any depth; a NoOp of a call's name waits for what it did."""
    while True:
        calls = [each for each in body.nodes.values() if _is_to_be_seen(each, library)]
        if not calls:
            return body
        nodes = dict(body.nodes)
        results: dict[Value, Value] = {}
        for call in calls:
            results |= _put_in_line(call, nodes, library)

        def current(output: Value, results: dict[Value, Value] = results) -> Value:
            while output in results:
                output = results[output]
            return output

        body = dataclasses.replace(
            body,
            nodes=graph_ir.topological_order(
                dataclasses.replace(each, inputs=[current(one) for one in each.inputs])
                for each in nodes.values()
            ),
            results=[current(each) for each in body.results],
        )


def _is_to_be_seen(node: Node, library: "Mapping[str, FunctionDef]") -> bool:
    definition = node.definition
    return (
        definition.op in _CALLS
        and not clustering.is_on_host(node)
        and (
            op_traits.communicates(definition, library)
            or op_traits.writes_variable(definition, library)
        )
    )


def _put_in_line(
    call: Node, nodes: dict[str, Node], library: "Mapping[str, FunctionDef]"
) -> dict[Value, Value]:
    """Adds the nodes of a called function; returns what the outputs of the call are now."""
    called = graph_ir.from_function_def(library[call.definition.attr["f"].func.name], library)
    new = {Value(name): given for name, given in zip(called.arguments, call.inputs, strict=True)}

    def inside(name: str) -> str:
        return f"{call.name}/inlined/{name}"

    def current(output: Value) -> Value:
        return new.get(output, Value(inside(output.producer), output.number))

    for each in called.nodes.values():
        nodes[inside(each.name)] = Node(
            inside(each.name),
            each.definition,
            [current(one) for one in each.inputs],
            [*call.controls, *(inside(one) for one in each.controls)],
        )
    results = [current(each) for each in called.results]
    done = [
        *call.controls,
        *(each.producer for each in (*call.inputs, *results) if each.producer in nodes),
        *(inside(each) for each in called.kept),
    ]
    nodes[call.name] = Node(call.name, _no_op(), controls=list(dict.fromkeys(done)))
    return {Value(call.name, number): each for number, each in enumerate(results)}


def _no_op() -> "NodeDef":
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    return NodeDef(op="NoOp")
