"""Bringing the TPU system up and down: an emulated one is always up."""

from typing import TYPE_CHECKING

from tpuserve.lowering.rules.rewrite_rule import RewriteRule, replace_op, replace_with_identity
from tpuserve.saved_model import dtypes

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef


def constant_text(node: "NodeDef", text: bytes) -> None:
    """Turns a node into a constant that is a string."""
    replace_op(node, "Const", [])
    node.attr["dtype"].type = dtypes.STRING
    value = node.attr["value"].tensor
    value.dtype = dtypes.STRING
    value.tensor_shape.SetInParent()
    value.string_val.append(text)


def _no_op(node: "NodeDef") -> None:
    replace_op(node, "NoOp", [])


def _configure(node: "NodeDef") -> None:
    # The topology that a real system would tell of is known before an emulated one is asked.
    constant_text(node, b"")


RULES = {
    "ConfigureDistributedTPU": RewriteRule(_configure, {"topology": "output"}),
    "ShutdownDistributedTPU": RewriteRule(_no_op),
    "TPUCompileSucceededAssert": RewriteRule(_no_op),
    "XlaSharding": RewriteRule(replace_with_identity),
}
