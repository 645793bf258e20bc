"""Finds properties of nodes in TensorFlow's op registry and in the functions that they call."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from tpuserve.graph.graph_walk import find_called_functions
from tpuserve.saved_model import dtypes

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.core.framework.op_def_pb2 import OpDef

    # The type of a function library: function name → FunctionDef.
    Library: TypeAlias = Mapping[str, FunctionDef]


def op_definition(node: "NodeDef", library: "Library") -> "OpDef":
    """Return the OpDef of a node's op, or the signature of the function that the node calls."""
    from tpuserve.tensorflow_internals import op_def_registry

    if node.op in library:
        return library[node.op].signature
    return op_def_registry.get(node.op)


def node_outputs(node: "NodeDef", library: "Library") -> list[tuple[str, int]]:
    """Return the name and the type of each output of a node.

    Args:
      node: a NodeDef with all its attributes, including those with default values.
      library: function name → FunctionDef, for a node whose op type is the name of a function.

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


def walk_calls(nodes: "Iterable[NodeDef]", library: "Library") -> "Iterator[NodeDef]":
    """Yield NodeDefs, then those of all functions that they call, directly or indirectly."""
    start = list(nodes)
    yield from start
    for name in sorted(find_called_functions(start, library)):
        yield from library[name].node_def


def is_handle(dtype: int) -> bool:
    """Return whether tensors of this DataType are handles of resources, such as variables."""
    return dtype == dtypes.RESOURCE
