"""Rules for TPUPartitionedCall, which calls a TPU computation, and TPUOrdinalSelector."""

from typing import TYPE_CHECKING

from tpuserve.lowering.rules.node_rewriting import (
    RewriteScope,
    control_inputs,
    data_inputs,
    replace_op,
)
from tpuserve.saved_model import dtypes

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef


def rewrite_partitioned_call(node: "NodeDef", scope: RewriteScope) -> None:
    """Rewrite a TPUPartitionedCall as a StatefulPartitionedCall."""
    # Drop the last data input, the ordinal of the TPU core: the call runs on the CPU.
    inputs = data_inputs(node)[:-1] + control_inputs(node)
    del node.input[:]
    node.input.extend(inputs)
    node.op = "StatefulPartitionedCall"
    node.attr.pop("autotuner_thresh", None)


def rewrite_ordinal_selector(node: "NodeDef", scope: RewriteScope) -> None:
    """Rewrite a TPUOrdinalSelector, which chooses a core, as the constant [0]."""
    replace_op(node, "Const", [])
    node.attr["dtype"].type = dtypes.INT32
    ordinals = node.attr["value"].tensor
    ordinals.dtype = dtypes.INT32
    ordinals.tensor_shape.dim.add().size = 1
    ordinals.int_val.append(0)
