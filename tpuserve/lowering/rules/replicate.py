"""The frame that `tpu.rewrite` draws around a computation: its metadata, inputs and outputs."""

from typing import TYPE_CHECKING

from tpuserve.errors import LoweringError
from tpuserve.lowering.rules.rewrite_rule import RewriteRule, replace_op, replace_with_identity
from tpuserve.lowering.rules.tpu_system import constant_text

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef


def _metadata(node: "NodeDef") -> None:
    replace_op(node, "NoOp", [])


def _compilation_result(node: "NodeDef") -> None:
    # An empty CompilationResultProto says that compiling succeeded.
    constant_text(node, b"")


def _replicated_input(node: "NodeDef") -> None:
    _demand_one_replica(node, node.attr["N"].i)
    replace_with_identity(node)


def _replicated_output(node: "NodeDef") -> None:
    _demand_one_replica(node, node.attr["num_replicas"].i)
    replace_with_identity(node)


def _demand_one_replica(node: "NodeDef", replicas: int) -> None:
    if replicas != 1:
        raise LoweringError(
            f"{node.op} {node.name!r} belongs to a computation of {replicas} replicas; only "
            f"computations of one replica can be lowered. Export it through tpu.rewrite."
        )


RULES = {
    "TPUReplicateMetadata": RewriteRule(_metadata),
    "TPUCompilationResult": RewriteRule(_compilation_result),
    "TPUReplicatedInput": RewriteRule(_replicated_input),
    "TPUReplicatedOutput": RewriteRule(_replicated_output, {"outputs": "output"}),
}
