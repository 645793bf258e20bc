"""Restores node attributes that TensorFlow leaves out of a saved graph.

TensorFlow leaves out each attribute whose value is the default value of the op.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef


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
