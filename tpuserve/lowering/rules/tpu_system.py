"""Bringing the TPU system up and down: an emulated one is always up."""

from typing import TYPE_CHECKING

from tpuserve.lowering.rules.rewrite_rule import Rule, be_identity, become
from tpuserve.saved_model import dtypes

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef


def constant_text(node: "NodeDef", text: bytes) -> None:
    """Turns a node into a constant that is a string."""
    become(node, "Const", [])
    node.attr["dtype"].type = dtypes.STRING
    value = node.attr["value"].tensor
    value.dtype = dtypes.STRING
    value.tensor_shape.SetInParent()
    value.string_val.append(text)


def _no_op(node: "NodeDef") -> None:
    become(node, "NoOp", [])


def _configure(node: "NodeDef") -> None:
    # The topology that a real system would tell of is known before an emulated one is asked.
    constant_text(node, b"")


RULES = {
    "ConfigureDistributedTPU": Rule(_configure, {"topology": "output"}),
    "ShutdownDistributedTPU": Rule(_no_op),
    "TPUCompileSucceededAssert": Rule(_no_op),
    "XlaSharding": Rule(be_identity),
}
