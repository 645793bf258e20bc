"""Sets large constants to zero in copies of graphs, to save memory.

Shape inference and test compilations by XLA use these copies: they need no large constants.
"""

from collections.abc import Iterable
from typing import Any

from tpuserve.graph.graph_walk import find_called_functions

# The size in bytes above which a constant is set to zero. TensorFlow infers shapes from the values
# of constants such as a list of sizes or an axis. These are smaller, so they keep their values.
_LARGE = 1 << 16


def clear_large_constants(graph: Any) -> Any:
    """Return a copy of a GraphDef in which constants above 64 KiB are zeros of the same shape."""
    cleared = type(graph)(versions=graph.versions)
    cleared.node.extend(map(clear_constant, graph.node))
    for function in graph.library.function:
        copy = cleared.library.function.add(
            signature=function.signature, attr=function.attr, arg_attr=function.arg_attr,
            ret=function.ret, control_ret=function.control_ret,
            resource_arg_unique_id=function.resource_arg_unique_id,
        )  # fmt: skip
        copy.node_def.extend(map(clear_constant, function.node_def))
    return cleared


def clear_constant(node: Any) -> Any:
    """Return a NodeDef; if it is a constant above 64 KiB, return a copy with zeros instead."""
    if node.op != "Const" or len(node.attr["value"].tensor.tensor_content) <= _LARGE:
        return node
    copy = type(node)(name=node.name, op=node.op, input=node.input, device=node.device)
    for name, attribute in node.attr.items():
        if name != "value":
            copy.attr[name].CopyFrom(attribute)
    # Copy the dtype and shape, but no values: TensorFlow reads a TensorProto without values as
    # zeros.
    tensor = node.attr["value"].tensor
    copy.attr["value"].tensor.dtype = tensor.dtype
    copy.attr["value"].tensor.tensor_shape.CopyFrom(tensor.tensor_shape)
    return copy


def select_functions(nodes: Iterable[Any], library: Any) -> list[Any]:
    """Return those FunctionDefs of a library that NodeDefs call, directly or indirectly."""
    functions = {function.signature.name: function for function in library.function}
    return [functions[name] for name in sorted(find_called_functions(nodes, functions))]
