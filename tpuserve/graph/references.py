"""Reads and replaces the inputs of NodeDefs: strings that refer to outputs of other nodes.

In a graph, a data input is "node" or "node:index". In the body of a function, it is
"node:output:index" or the name of an argument. A control input is "^node" in both.
"""

from collections.abc import Iterable
from typing import Any


def node_name(reference: str) -> str:
    """Return the name of the node in the name of a tensor or in an input, such as "y:0" or "^y"."""
    return reference.removeprefix("^").partition(":")[0]


def tensor_name(reference: str) -> str:
    """Return the full name of the tensor that a data input refers to: "y" becomes "y:0"."""
    name, _, index = reference.partition(":")
    return f"{name}:{index or 0}"


def data_inputs(node: Any) -> list[str]:
    """Return the inputs of a NodeDef without its control inputs, in order."""
    return [reference for reference in node.input if not reference.startswith("^")]


def control_inputs(node: Any) -> list[str]:
    """Return the control inputs of a NodeDef, each with its "^"."""
    return [reference for reference in node.input if reference.startswith("^")]


def replace_data_inputs(node: Any, inputs: Iterable[str]) -> None:
    """Replace the data inputs of a NodeDef in place; its control inputs follow the new inputs."""
    node.input[:] = [*inputs, *control_inputs(node)]
