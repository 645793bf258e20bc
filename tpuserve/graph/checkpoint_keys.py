"""Finds the key under which the checkpoint of a SavedModel stores each variable."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tpuserve.graph.graph_walk import FUNCTION_CALLS, skip_identities
from tpuserve.graph.references import data_inputs, node_name

_ASSIGN = "AssignVariableOp"
_RESTORE = "RestoreV2"


def find_checkpoint_keys(graph: Any) -> dict[str, str]:
    """Return the checkpoint key of each variable in the graph of a SavedModel.

    The graph itself has the ops that restore its variables: a RestoreV2 reads tensors by their
    keys, and an AssignVariableOp assigns each tensor to a variable.

    Returns:
      Name of the variable → key. The name is the shared_name of the VarHandleOp, or the name of
      that node if it has no shared_name.
    """
    functions = {function.signature.name: function for function in graph.library.function}
    keys: dict[str, str] = {}
    # Read a function only once for the same variables as arguments: in a damaged graph, a function
    # can call itself.
    visited: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    pending: list[tuple[Iterable[Any], Mapping[str, str]]] = [(graph.node, {})]
    while pending:
        nodes, handles = pending.pop()
        for name, arguments in _collect(nodes, handles, functions, keys):
            call = name, frozenset(arguments.items())
            if call not in visited:
                visited.add(call)
                pending.append((functions[name].node_def, arguments))
    return keys


def variable_name(node: Any) -> str:
    """Return the name of a variable: the shared_name of its VarHandleOp, or the node's name."""
    name: str = node.attr["shared_name"].s.decode() or node.name
    return name


def _collect(
    nodes: Iterable[Any],
    handles: Mapping[str, str],
    functions: Mapping[str, Any],
    keys: dict[str, str],
) -> Iterator[tuple[str, dict[str, str]]]:
    """Add to `keys` the checkpoint keys of the variables that nodes assign."""
    by_name = {node.name: node for node in nodes}
    for node in by_name.values():
        if node.op == _ASSIGN:
            name = _find_variable(node.input[0], by_name, handles)
            key = _find_key(node.input[1], by_name)
            if name is not None and key is not None:
                keys[name] = key
        elif node.op in FUNCTION_CALLS and node.attr["f"].func.name in functions:
            function = functions[node.attr["f"].func.name]
            inputs = data_inputs(node)
            arguments = {}
            for argument, reference in zip(function.signature.input_arg, inputs, strict=False):
                name = _find_variable(reference, by_name, handles)
                if name is not None:
                    arguments[argument.name] = name
            if arguments:
                yield function.signature.name, arguments


def _find_variable(
    reference: str, nodes: Mapping[str, Any], handles: Mapping[str, str]
) -> str | None:
    producer = node_name(skip_identities(reference, nodes))
    if producer in handles:
        return handles[producer]
    node = nodes.get(producer)
    return variable_name(node) if node is not None and node.op == "VarHandleOp" else None


def _find_key(reference: str, nodes: Mapping[str, Any]) -> str | None:
    """Return the checkpoint key from which a RestoreV2 reads a tensor."""
    source, *rest = skip_identities(reference, nodes).split(":")
    node = nodes.get(source)
    if node is None or node.op != _RESTORE:
        return None
    # Inputs refer to an output of RestoreV2 by "node" or "node:index" in a graph, and by
    # "node:tensors:index" in the body of a function.
    index = int(rest[-1]) if rest else 0
    names = _constant_strings(node.input[1], nodes)
    slices = _constant_strings(node.input[2], nodes)
    if names is None or slices is None or index >= len(names) or slices[index]:
        return None
    return names[index].decode()


def _constant_strings(reference: str, nodes: Mapping[str, Any]) -> Sequence[bytes] | None:
    node = nodes.get(node_name(skip_identities(reference, nodes)))
    if node is None or node.op != "Const":
        return None
    tensor = node.attr["value"].tensor
    count = tensor.tensor_shape.dim[0].size if tensor.tensor_shape.dim else 1
    values = list(tensor.string_val)
    # A TensorProto whose elements are all equal may store the value only once. Repeat the value.
    return values + values[-1:] * (count - len(values))
