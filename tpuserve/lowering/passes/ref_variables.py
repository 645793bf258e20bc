"""Replaces the reference variables of TensorFlow 1 by resource variables.

A function that XLA compiles can take the handle of a resource variable, but no reference.
"""

from typing import Any

from tpuserve.errors import ExportError
from tpuserve.graph.references import node_name
from tpuserve.lowering.ir import graph_ir, op_defs

_VARIABLES = ("VariableV2", "Variable")
# Op type that updates a reference variable → op type that updates a resource variable.
_UPDATES = {
    "Assign": "AssignVariableOp",
    "AssignAdd": "AssignAddVariableOp",
    "AssignSub": "AssignSubVariableOp",
}
_DROPPED = ("_class", "_output_shapes")


def replace_ref_variables(graph: Any) -> None:
    """Replace the reference variables in a GraphDef's main graph by resource variables, in place.

    Reference variables are the ops Variable and VariableV2 of TensorFlow 1.

    Raises:
      ExportError: An op cannot work with a resource variable, because it needs a reference.
    """
    variables = {node.name: node for node in graph.node if node.op in _VARIABLES}
    if not variables:
        return
    names = {node.name for node in graph.node}
    reads: dict[str, Any] = {}
    for node in list(graph.node):
        for name in _DROPPED:
            node.attr.pop(name, None)
        if node.op in _UPDATES and node_name(node.input[0]) in variables:
            _replace_update(graph, node, variables)
            continue
        for position, reference in enumerate(node.input):
            variable = variables.get(node_name(reference))
            if variable is None or reference.startswith("^"):
                continue
            if node.op == "IsVariableInitialized":
                node.op = "VarIsInitializedOp"
                node.attr.clear()
                continue
            if node.op == "Identity":
                _make_read(node, variable, list(node.input[1:]))
                break
            if _takes_reference(node, position):
                raise ExportError(
                    f"op {node.op} ({node.name!r}) updates the variable {variable.name!r} of "
                    f"TensorFlow 1 in a signature, which XLA cannot. Save the model with "
                    f"resource variables: tf.compat.v1.enable_resource_variables()."
                )
            if variable.name not in reads:
                name = graph_ir.unused_name(f"{variable.name}/Read/ReadVariableOp", names)
                names.add(name)
                reads[variable.name] = graph.node.add(name=name)
                _make_read(reads[variable.name], variable, [])
            node.input[position] = reads[variable.name].name
    for variable in variables.values():
        variable.op = "VarHandleOp"
        shared_name = variable.attr["shared_name"].s or variable.name.encode()
        variable.attr["shared_name"].s = shared_name


def _replace_update(graph: Any, node: Any, variables: Any) -> None:
    """Turn an op that updates a reference variable into one that updates a resource variable."""
    variable = variables[node_name(node.input[0])]
    readers = [
        (other, position)
        for other in graph.node
        for position, reference in enumerate(other.input)
        if not reference.startswith("^") and node_name(reference) == node.name
    ]
    node.op = _UPDATES[node.op]
    dtype = variable.attr["dtype"].type
    node.attr.clear()
    node.attr["dtype"].type = dtype
    if readers:
        read = graph.node.add(name=f"{node.name}/updated")
        _make_read(read, variable, [f"^{node.name}"])
        for other, position in readers:
            other.input[position] = read.name


def _make_read(node: Any, variable: Any, controls: list[str]) -> None:
    node.op = "ReadVariableOp"
    node.attr.clear()
    node.attr["dtype"].type = variable.attr["dtype"].type
    del node.input[:]
    node.input.extend([variable.name, *controls])


def _takes_reference(node: Any, position: int) -> bool:
    definition = op_defs.op_definition(node, {})
    arguments: list[bool] = []
    for argument in definition.input_arg if definition is not None else ():
        count = node.attr[argument.number_attr].i if argument.number_attr else 1
        if argument.type_list_attr:
            count = len(node.attr[argument.type_list_attr].list.type)
        arguments += [argument.is_ref] * count
    return position < len(arguments) and arguments[position]
