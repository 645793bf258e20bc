"""The frame that `tpu.rewrite` draws around a computation: its metadata, inputs and outputs."""

from typing import TYPE_CHECKING

from tpuserve.errors import LoweringError
from tpuserve.lowering.rules.rewrite_rule import Rule, be_identity, become
from tpuserve.lowering.rules.tpu_system import constant_text

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef


def _metadata(node: "NodeDef") -> None:
    become(node, "NoOp", [])


def _compilation_result(node: "NodeDef") -> None:
    # An empty CompilationResultProto says that compiling succeeded.
    constant_text(node, b"")


def _replicated_input(node: "NodeDef") -> None:
    _demand_one_replica(node, node.attr["N"].i)
    be_identity(node)


def _replicated_output(node: "NodeDef") -> None:
    _demand_one_replica(node, node.attr["num_replicas"].i)
    be_identity(node)


def _demand_one_replica(node: "NodeDef", replicas: int) -> None:
    if replicas != 1:
        raise LoweringError(
            f"{node.op} {node.name!r} belongs to a computation of {replicas} replicas; only "
            f"computations of one replica can be lowered. Export it through tpu.rewrite."
        )


RULES = {
    "TPUReplicateMetadata": Rule(_metadata),
    "TPUCompilationResult": Rule(_compilation_result),
    "TPUReplicatedInput": Rule(_replicated_input),
    "TPUReplicatedOutput": Rule(_replicated_output, {"outputs": "output"}),
}
