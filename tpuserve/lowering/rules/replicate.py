"""Rules that replace the ops TPUReplicatedInput, TPUReplicatedOutput and XlaReplicaId by CPU ops.

tpu.rewrite and tpu.replicate add TPUReplicatedInput and TPUReplicatedOutput at the inputs and
outputs of a TPU computation. XlaReplicaId returns the index of the replica that runs it.
"""

from typing import TYPE_CHECKING

from tpuserve.errors import LoweringError
from tpuserve.lowering.ir.graph_ir import Value
from tpuserve.lowering.rules.node_rewriting import RewriteScope, replace_with_identity
from tpuserve.lowering.rules.op_spec import ReplicatedOp

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef


def rewrite_replicated_input(node: "NodeDef", scope: RewriteScope) -> None:
    """Turn a TPUReplicatedInput into an Identity; its computation must have a single replica."""
    _check_one_replica(node, node.attr["N"].i)
    replace_with_identity(node)


def rewrite_replicated_output(node: "NodeDef", scope: RewriteScope) -> None:
    """Turn a TPUReplicatedOutput into an Identity; its computation must have a single replica."""
    _check_one_replica(node, node.attr["num_replicas"].i)
    replace_with_identity(node)


def _check_one_replica(node: "NodeDef", num_replicas: int) -> None:
    if num_replicas != 1:
        raise LoweringError(
            f"{node.op} {node.name!r} belongs to a computation of {num_replicas} replicas; only "
            f"computations of one replica can be lowered. Export it through tpu.rewrite."
        )


def lower_replica_id(op: ReplicatedOp) -> list[list[Value]]:
    """Replace an XlaReplicaId by an int32 constant for each replica: the index of the replica."""
    return [[op.make_node("Const", [], value=replica) for replica in range(op.num_replicas)]]
