"""Rules that replace the ops TPUPartitionedCall and TPUOrdinalSelector by CPU ops.

TPUPartitionedCall calls a function on the TPU core that TPUOrdinalSelector chooses.
"""

from typing import TYPE_CHECKING

from tpuserve.graph.references import data_inputs, replace_data_inputs
from tpuserve.lowering.rules.node_rewriting import RewriteScope, replace_op
from tpuserve.saved_model import dtypes

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef


def rewrite_partitioned_call(node: "NodeDef", scope: RewriteScope) -> None:
    """Turn a TPUPartitionedCall into a StatefulPartitionedCall of the same function."""
    # Remove the last data input, which is the ordinal of the TPU core: the call runs on the CPU.
    replace_data_inputs(node, data_inputs(node)[:-1])
    node.op = "StatefulPartitionedCall"
    node.attr.pop("autotuner_thresh", None)


def rewrite_ordinal_selector(node: "NodeDef", scope: RewriteScope) -> None:
    """Turn a TPUOrdinalSelector, which chooses a TPU core, into the constant [0]."""
    replace_op(node, "Const", [])
    node.attr["dtype"].type = dtypes.INT32
    ordinals = node.attr["value"].tensor
    ordinals.dtype = dtypes.INT32
    ordinals.tensor_shape.dim.add().size = 1
    ordinals.int_val.append(0)
