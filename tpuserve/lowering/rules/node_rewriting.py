"""Helpers for the functions that replace a TPU op in a NodeDef by a CPU op, in place."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpuserve.graph.references import data_inputs, replace_data_inputs
from tpuserve.saved_model import dtypes

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef


@dataclass(frozen=True)
class RewriteScope:
    """The graph or function body in which a NodeDef is being replaced."""

    nodes: Any
    in_function: bool

    def add_node(self, name: str) -> "NodeDef":
        """Add a NodeDef with a name, but without op, inputs and attributes; return it."""
        node: NodeDef = self.nodes.add(name=name)
        return node

    def reference(self, node: "NodeDef", output: str) -> str:
        """Return the string by which inputs of other nodes refer to an output of a node.

        Args:
          output: the name of an output argument, whose first tensor the string refers to. In the
            main graph, it must be the first output argument of the node.
        """
        return f"{node.name}:{output}:0" if self.in_function else node.name


def replace_op(node: "NodeDef", op: str, inputs: list[str]) -> None:
    """Replace the op type and the data inputs of a NodeDef; its control inputs stay.

    All attributes are removed, because they are those of the old op.

    Args:
      inputs: the new data inputs, each in the form of a NodeDef's input, such as "node:1".
    """
    replace_data_inputs(node, inputs)
    node.op = op
    node.attr.clear()


def replace_with_identity(node: "NodeDef") -> None:
    """Turn a NodeDef that has one data input into an Identity of that input."""
    element_type = node.attr["T"].type
    replace_op(node, "Identity", data_inputs(node))
    node.attr["T"].type = element_type


def replace_with_string(node: "NodeDef", text: bytes) -> None:
    """Turn a NodeDef into a scalar string constant with the value `text`."""
    replace_op(node, "Const", [])
    node.attr["dtype"].type = dtypes.STRING
    value = node.attr["value"].tensor
    value.dtype = dtypes.STRING
    value.tensor_shape.SetInParent()
    value.string_val.append(text)


def rewrite_as_identity(node: "NodeDef", scope: RewriteScope) -> None:
    """Turn a NodeDef that has one data input into an Identity.

    This function is a possible value of `OpSpec.rewrite`.
    """
    replace_with_identity(node)


def rewrite_as_no_op(node: "NodeDef", scope: RewriteScope) -> None:
    """Turn a NodeDef into a NoOp with the same control inputs.

    This function is a possible value of `OpSpec.rewrite`.
    """
    replace_op(node, "NoOp", [])


def rewrite_as_empty_string(node: "NodeDef", scope: RewriteScope) -> None:
    """Turn a NodeDef into a constant with the empty string.

    This function is a possible value of `OpSpec.rewrite`.
    """
    replace_with_string(node, b"")
