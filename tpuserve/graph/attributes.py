"""Reads attributes of nodes without changing the nodes."""

from typing import Any


def attribute_value(node: Any, name: str) -> Any:
    """Return an attribute of a node, or an empty AttrValue if the node does not have the attribute.

    `node.attr[name]` adds an empty attribute to a node that leaves the attribute at its default.
    TensorFlow then reads the empty attribute in place of the default, and refuses the graph.

    Args:
      node: a NodeDef.
      name: the name of the attribute.
    """
    return node.attr[name] if name in node.attr else type(node)().attr[name]
