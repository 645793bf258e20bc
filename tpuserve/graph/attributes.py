"""Reads an attribute of a NodeDef without adding the attribute if it is missing."""

from typing import Any


def attribute_value(node: Any, name: str) -> Any:
    """Return an attribute of a node, or an empty AttrValue if the node does not have the attribute.

    Protobuf adds an empty attribute to the node if `node.attr[name]` is read and does not exist.
    """
    return node.attr[name] if name in node.attr else type(node)().attr[name]
