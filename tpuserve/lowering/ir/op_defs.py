"""Finds properties of nodes in TensorFlow's op registry and in the functions that they call."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from tpuserve.graph.graph_walk import find_called_functions
from tpuserve.saved_model import dtypes

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef


if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.core.framework.op_def_pb2 import OpDef

    # The type of a function library: function name → FunctionDef.
    Library: TypeAlias = Mapping[str, FunctionDef]


def restore_default_attrs(graph: "GraphDef") -> None:
    """Add missing attributes, with default values, to all nodes of a GraphDef and its functions."""
    add_default_attrs(graph.node)
    for function in graph.library.function:
        add_default_attrs(function.node_def)


def add_default_attrs(nodes: "Iterable[NodeDef]") -> None:
    """Add missing attributes, with the default values of the op registry, to NodeDefs."""
    from tpuserve.tensorflow_internals import op_def_registry

    for node in nodes:
        definition = op_def_registry.get(node.op)
        # If the op type of a node is the name of a function, the op registry has no definition.
        # Skip the node.
        for attribute in definition.attr if definition is not None else ():
            if attribute.HasField("default_value") and attribute.name not in node.attr:
                node.attr[attribute.name].CopyFrom(attribute.default_value)


# Op type → OpDef. A lowering asks for the OpDefs of a large graph a million times.
_registered_ops: "dict[str, OpDef]" = {}
# Op type → whether the op has attributes of _FUNCTION_TYPES, the functions that it may call.
_ops_with_functions: dict[str, bool] = {}
_GROWING = ("dynamic_size", "resize_if_index_out_of_bounds")
_FUNCTION_TYPES = ("func", "list(func)")


def op_definition(node: "NodeDef", library: "Library") -> "OpDef":
    """Return the OpDef of a node's op, or the signature of the function that the node calls.

    The result is None if TensorFlow does not know the op.
    """
    name = node.op
    if name in library:
        return library[name].signature
    definition = _registered_ops.get(name)
    if definition is None:
        from tpuserve.tensorflow_internals import op_def_registry

        definition = op_def_registry.get(name)
        if definition is not None:
            _registered_ops[name] = definition
    return definition


def node_outputs(node: "NodeDef", library: "Library") -> list[tuple[str, int]]:
    """Return the name and the type of each output of a node.

    Args:
      node: a NodeDef with all its attributes, including those with default values.

    Returns:
      For each output, its name in the body of a function, and its DataType enum value. The name
      "outputs:1", for example, is the second tensor of the output argument "outputs".
    """
    outputs = []
    for argument in op_definition(node, library).output_arg:
        if argument.type_list_attr:
            types = list(node.attr[argument.type_list_attr].list.type)
        else:
            dtype = node.attr[argument.type_attr].type if argument.type_attr else argument.type
            types = [dtype] * (node.attr[argument.number_attr].i if argument.number_attr else 1)
        outputs += [(f"{argument.name}:{index}", dtype) for index, dtype in enumerate(types)]
    return outputs


def is_stateful(node: "NodeDef", library: "Library") -> bool:
    """Return whether TensorFlow declares a node's op as stateful.

    If the op type is the name of a function, return whether the function is declared as stateful.
    """
    return bool(op_definition(node, library).is_stateful)


def can_grow(node: "NodeDef") -> bool:
    """Return whether a node's array gets longer if the program writes behind its end.

    In XLA, arrays keep their size: it refuses such a TensorArray, and truncates such a TensorList.
    """
    return any(name in node.attr and node.attr[name].b for name in _GROWING)


def walk_calls(nodes: "Iterable[NodeDef]", library: "Library") -> "Iterator[NodeDef]":
    """Yield NodeDefs, then the NodeDefs of all functions that they call directly or indirectly."""
    start = list(nodes)
    yield from start
    if not any(_may_call_functions(node, library) for node in start):
        return
    for name in sorted(find_called_functions(start, library)):
        yield from library[name].node_def


def _may_call_functions(node: "NodeDef", library: "Library") -> bool:
    name = node.op
    if name in library:
        return True
    may_call = _ops_with_functions.get(name)
    if may_call is None:
        definition = op_definition(node, library)
        may_call = any(attribute.type in _FUNCTION_TYPES for attribute in definition.attr)
        _ops_with_functions[name] = may_call
    return may_call


def is_handle(dtype: int) -> bool:
    """Return whether tensors of this DataType are handles of resources, such as variables."""
    return dtype == dtypes.RESOURCE
