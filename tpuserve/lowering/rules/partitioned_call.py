"""The call into a TPU computation, and the choice of the core that runs it."""

from typing import TYPE_CHECKING

from tpuserve.lowering.rules.rewrite_rule import (
    RewriteRule,
    control_inputs,
    data_inputs,
    replace_op,
)
from tpuserve.saved_model import dtypes

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef


def _partitioned_call(node: "NodeDef") -> None:
    # The last input is the ordinal of the core to run on; the CPU has just the one place.
    inputs = data_inputs(node)[:-1] + control_inputs(node)
    del node.input[:]
    node.input.extend(inputs)
    node.op = "StatefulPartitionedCall"
    node.attr.pop("autotuner_thresh", None)


def _ordinal_selector(node: "NodeDef") -> None:
    replace_op(node, "Const", [])
    node.attr["dtype"].type = dtypes.INT32
    ordinals = node.attr["value"].tensor
    ordinals.dtype = dtypes.INT32
    ordinals.tensor_shape.dim.add().size = 1
    ordinals.int_val.append(0)


RULES = {
    "TPUPartitionedCall": RewriteRule(_partitioned_call),
    "TPUOrdinalSelector": RewriteRule(_ordinal_selector, {"device_ordinals": "output"}),
}
