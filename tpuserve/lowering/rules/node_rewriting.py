"""Helpers for rules that replace the op of a NodeDef in place."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpuserve.saved_model import dtypes

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef


@dataclass(frozen=True)
class RewriteScope:
    """The graph or function body that holds the node that a rule replaces.

    Attributes:
      nodes: the repeated NodeDef field that holds the node.
      in_function: True if `nodes` belongs to a FunctionDef, False if it belongs to a GraphDef.
    """

    nodes: Any
    in_function: bool

    def add_node(self, name: str) -> "NodeDef":
        """Add a NodeDef of this name, without op, inputs and attributes, and return it."""
        node: NodeDef = self.nodes.add(name=name)
        return node

    def reference(self, node: "NodeDef", output: str) -> str:
        """Return the string by which the inputs of other nodes refer to a tensor of a node.

        Args:
          node: the node that produces the tensor.
          output: the name of the output argument whose first tensor is meant. In the main graph,
            it must be the node's first output argument.
        """
        return f"{node.name}:{output}:0" if self.in_function else node.name


def data_inputs(node: "NodeDef") -> list[str]:
    """Return a node's inputs without its control inputs, in order."""
    return [reference for reference in node.input if not reference.startswith("^")]


def control_inputs(node: "NodeDef") -> list[str]:
    """Return a node's control inputs, each with its "^"."""
    return [reference for reference in node.input if reference.startswith("^")]


def full_tensor_name(reference: str) -> str:
    """Return the name of the tensor of a graph that a data input refers to, such as "node:0"."""
    return reference if ":" in reference else f"{reference}:0"


def replace_op(node: "NodeDef", op: str, inputs: list[str]) -> None:
    """Replace the op and the data inputs of a node; its control inputs stay.

    All attributes are removed: no TPU op shares an attribute with its replacement.
    """
    inputs = inputs + control_inputs(node)
    del node.input[:]
    node.input.extend(inputs)
    node.op = op
    node.attr.clear()


def replace_with_identity(node: "NodeDef") -> None:
    """Replace a node that has one data input by an Identity."""
    element_type = node.attr["T"].type
    replace_op(node, "Identity", data_inputs(node))
    node.attr["T"].type = element_type


def replace_with_string(node: "NodeDef", text: bytes) -> None:
    """Replace a node by a scalar string constant."""
    replace_op(node, "Const", [])
    node.attr["dtype"].type = dtypes.STRING
    value = node.attr["value"].tensor
    value.dtype = dtypes.STRING
    value.tensor_shape.SetInParent()
    value.string_val.append(text)


def rewrite_as_identity(node: "NodeDef", scope: RewriteScope) -> None:
    """Rewrite a node as an Identity of its data input."""
    replace_with_identity(node)


def rewrite_as_no_op(node: "NodeDef", scope: RewriteScope) -> None:
    """Rewrite a node as a NoOp that keeps the node's control inputs."""
    replace_op(node, "NoOp", [])


def rewrite_as_empty_string(node: "NodeDef", scope: RewriteScope) -> None:
    """Rewrite a node as an empty string constant."""
    replace_with_string(node, b"")
