"""Renames functions, so that a graph can hold an original and a changed version, and outputs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tpuserve.graph.graph_walk import called_functions
from tpuserve.lowering.ir.graph_ir import unused_name

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef


def rename_changed_functions(
    graph: "GraphDef", original: "GraphDef", suffix: str = "_lowered"
) -> None:
    """Rename the changed functions of a GraphDef, so that a tf.Graph can import the GraphDef.

    The tf.Graph already has the original functions, so the changed functions need other names.
    """
    before = {function.signature.name: function for function in original.library.function}
    after = {function.signature.name: function for function in graph.library.function}
    taken = before.keys() | after.keys()
    unchanged = {
        name for name, function in after.items() if name in before and function == before[name]
    }
    changed = after.keys() - unchanged
    while True:
        callers = {
            name
            for name in unchanged
            if any({node.op, *called_functions(node)} & changed for node in after[name].node_def)
        }
        if not callers:
            break
        unchanged -= callers
        changed |= callers
    new_names = {
        name: unused_name(name + suffix, taken) if name in before else name for name in changed
    }
    remaining = [after[name] for name in after if name in changed]
    del graph.library.function[:]
    graph.library.function.extend(remaining)
    rename_functions(graph, new_names)


def rename_functions(graph: "GraphDef", new_names: Mapping[str, str]) -> None:
    """Rename functions in the library of a graph, and let all nodes call them by the new names.

    Args:
      new_names: old name → new name. All other functions keep their names.
    """
    for node in graph.node:
        rename_calls(node, new_names)
    for function in graph.library.function:
        name = function.signature.name
        function.signature.name = new_names.get(name, name)
        for node in function.node_def:
            rename_calls(node, new_names)


def rename_calls(node: Any, new_names: Mapping[str, str]) -> None:
    """Let a NodeDef call other functions, in place."""
    node.op = new_names.get(node.op, node.op)
    for attribute in node.attr.values():
        kind = attribute.WhichOneof("value")
        if kind == "func":
            attribute.func.name = new_names.get(attribute.func.name, attribute.func.name)
        elif kind == "list":
            for function in attribute.list.func:
                function.name = new_names.get(function.name, function.name)


def rename_outputs(function: Any, renamed: Mapping[str, Mapping[str, str]]) -> None:
    """Update the references to output arguments that were renamed, in the body of a function.

    Args:
      renamed: name of a node → old name of its output argument → new name.
    """

    def new_reference(reference: str) -> str:
        node, *output = reference.split(":")
        if not output or node not in renamed:
            return reference
        argument, *index = output
        return ":".join([node, renamed[node].get(argument, argument), *index])

    for node in function.node_def:
        for position, reference in enumerate(node.input):
            node.input[position] = new_reference(reference)
    for name, reference in list(function.ret.items()):
        function.ret[name] = new_reference(reference)
