"""Attributes that an export has left out for having their default value, put back.

What types a node gives is said by its attributes, those with a default included.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef


def restore_default_attrs(graph: "GraphDef") -> None:
    """Gives every node of a graph and of its functions all attributes of its op, in place."""
    _complete(graph.node)
    for function in graph.library.function:
        _complete(function.node_def)


def _complete(nodes: "Iterable[NodeDef]") -> None:
    from tensorflow.python.framework import op_def_registry

    for node in nodes:
        definition = op_def_registry.get(node.op)
        # None where the op is a function.
        for attribute in definition.attr if definition is not None else ():
            if attribute.HasField("default_value") and attribute.name not in node.attr:
                node.attr[attribute.name].CopyFrom(attribute.default_value)
