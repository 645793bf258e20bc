"""What replacing one TPU op takes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    Rewrite: TypeAlias = Callable[[NodeDef], None]


@dataclass(frozen=True)
class RewriteRule:
    """How one op type is replaced.

    Attributes:
      rewrite: changes a node of that type in place; raises LoweringError where it cannot.
      renamed_outputs: the op's output argument → the replacement's. Function bodies refer to
        outputs by these names ("node:outputs:0"), so references change with the op.
    """

    rewrite: "Rewrite"
    renamed_outputs: Mapping[str, str] = field(default_factory=dict)


def data_inputs(node: "NodeDef") -> list[str]:
    """A node's inputs without its control inputs, in order."""
    return [each for each in node.input if not each.startswith("^")]


def control_inputs(node: "NodeDef") -> list[str]:
    """A node's control inputs, each with its "^"."""
    return [each for each in node.input if each.startswith("^")]


def replace_op(node: "NodeDef", op: str, inputs: list[str]) -> None:
    """Turns a node into one of another op, with these data inputs and its old control inputs.

    Attributes are dropped: no TPU op shares one with what replaces it.
    """
    inputs = inputs + control_inputs(node)
    del node.input[:]
    node.input.extend(inputs)
    node.op = op
    node.attr.clear()


def replace_with_identity(node: "NodeDef") -> None:
    """Turns a node of one data input into one that hands it on."""
    element_type = node.attr["T"].type
    replace_op(node, "Identity", data_inputs(node))
    node.attr["T"].type = element_type
