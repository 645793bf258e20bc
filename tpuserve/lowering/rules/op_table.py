"""The table of the ops that the lowering treats specially, with an `OpSpec` for each of them.

The lowering turns a graph for a TPU into a graph for a CPU.

    OpSpec(
        "CrossReplicaSum",
        OpKind.COLLECTIVE,
        is_tpu_op=True,
        lower_replicated=collectives.lower_cross_replica_sum,
        invariance=collectives.is_full_all_reduce,
        reduction="Add",
    )
"""

from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING

from tpuserve.errors import LoweringError
from tpuserve.graph import state_writes
from tpuserve.graph.references import data_inputs, replace_data_inputs
from tpuserve.lowering.ir.graph_ir import Value
from tpuserve.lowering.rules import collectives, infeed_outfeed
from tpuserve.lowering.rules.node_rewriting import (
    RewriteScope,
    replace_op,
    replace_with_identity,
    rewrite_as_empty_string,
    rewrite_as_identity,
    rewrite_as_no_op,
)
from tpuserve.lowering.rules.op_spec import (
    OpKind,
    OpSpec,
    ReplicatedOp,
    invariant_on_one_replica,
    never_invariant,
)
from tpuserve.saved_model import dtypes

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef


def _rewrite_replicated_input(node: "NodeDef", scope: RewriteScope) -> None:
    """Turn a TPUReplicatedInput into an Identity; its computation must have a single replica."""
    _check_one_replica(node, node.attr["N"].i)
    replace_with_identity(node)


def _rewrite_replicated_output(node: "NodeDef", scope: RewriteScope) -> None:
    """Turn a TPUReplicatedOutput into an Identity; its computation must have a single replica."""
    _check_one_replica(node, node.attr["num_replicas"].i)
    replace_with_identity(node)


def _check_one_replica(node: "NodeDef", num_replicas: int) -> None:
    if num_replicas != 1:
        raise LoweringError(
            f"{node.op} {node.name!r} belongs to a computation of {num_replicas} replicas; only "
            f"computations of one replica can be lowered. Export it through tpu.rewrite."
        )


def _lower_replica_id(op: ReplicatedOp) -> list[list[Value]]:
    """Replace an XlaReplicaId by an int32 constant for each replica: the index of the replica."""
    return [[op.make_node("Const", [], value=replica) for replica in range(op.num_replicas)]]


def _rewrite_partitioned_call(node: "NodeDef", scope: RewriteScope) -> None:
    # Remove the last data input, which is the ordinal of the TPU core: the call runs on the CPU.
    replace_data_inputs(node, data_inputs(node)[:-1])
    node.op = "StatefulPartitionedCall"
    node.attr.pop("autotuner_thresh", None)


def _rewrite_ordinal_selector(node: "NodeDef", scope: RewriteScope) -> None:
    """Turn a TPUOrdinalSelector, which chooses a TPU core, into the constant [0]."""
    replace_op(node, "Const", [])
    node.attr["dtype"].type = dtypes.INT32
    ordinals = node.attr["value"].tensor
    ordinals.dtype = dtypes.INT32
    ordinals.tensor_shape.dim.add().size = 1
    ordinals.int_val.append(0)


_COMPONENTS = {"output": "components", "outputs": "components"}

_VALUES = (
    OpSpec("Const", OpKind.CONSTANT),
    OpSpec("Identity", OpKind.IDENTITY),
    OpSpec("IdentityN", OpKind.IDENTITY),
    OpSpec("Switch", OpKind.SWITCH_MERGE),
    OpSpec("Merge", OpKind.SWITCH_MERGE),
    OpSpec("NoOp", OpKind.NO_OP, is_clustered=False),
)

_VARIABLES = (
    OpSpec("VarHandleOp", OpKind.VARIABLE_HANDLE, is_clustered=False),
    OpSpec("ReadVariableOp", OpKind.VARIABLE_READ, is_clustered=False),
    OpSpec("ResourceGather", OpKind.VARIABLE_READ),
    OpSpec("ResourceGatherNd", OpKind.VARIABLE_READ),
    OpSpec("VariableShape", OpKind.VARIABLE_READ),
    OpSpec("VarIsInitializedOp", OpKind.VARIABLE_READ),
)

_CALLS = (
    OpSpec("PartitionedCall", OpKind.CALL),
    OpSpec("StatefulPartitionedCall", OpKind.CALL),
    OpSpec("If", OpKind.BRANCH),
    OpSpec("StatelessIf", OpKind.BRANCH),
    OpSpec("Case", OpKind.BRANCH),
    OpSpec("StatelessCase", OpKind.BRANCH),
    OpSpec("While", OpKind.LOOP),
    OpSpec("StatelessWhile", OpKind.LOOP),
)

_REPLICAS = (
    OpSpec(
        "CrossReplicaSum",
        OpKind.COLLECTIVE,
        is_tpu_op=True,
        lower_replicated=collectives.lower_cross_replica_sum,
        invariance=collectives.is_full_all_reduce,
        reduction="Add",
    ),
    OpSpec(
        "AllToAll",
        OpKind.COLLECTIVE,
        is_tpu_op=True,
        lower_replicated=collectives.lower_all_to_all,
        invariance=invariant_on_one_replica,
    ),
    OpSpec(
        "CollectivePermute",
        OpKind.COLLECTIVE,
        is_tpu_op=True,
        lower_replicated=collectives.lower_permute,
        invariance=invariant_on_one_replica,
    ),
    OpSpec(
        "XlaReplicaId",
        OpKind.REPLICA_ID,
        lower_replicated=_lower_replica_id,
        invariance=invariant_on_one_replica,
    ),
)

_INFEED_AND_OUTFEED = (
    *(
        OpSpec(
            op,
            OpKind.INFEED_DEQUEUE,
            is_tpu_op=True,
            lower_replicated=infeed_outfeed.lower_infeed_dequeue,
            invariance=never_invariant,
        )
        for op in ("InfeedDequeue", "InfeedDequeueTuple")
    ),
    *(
        OpSpec(
            op,
            OpKind.OUTFEED_ENQUEUE,
            is_tpu_op=True,
            lower_replicated=infeed_outfeed.lower_outfeed_enqueue,
        )
        for op in ("OutfeedEnqueue", "OutfeedEnqueueTuple")
    ),
    *(
        OpSpec(
            op,
            OpKind.HOST_TRANSFER,
            is_tpu_op=True,
            rewrite=infeed_outfeed.rewrite_infeed_enqueue,
        )
        for op in ("InfeedEnqueue", "InfeedEnqueueTuple")
    ),
    *(
        OpSpec(
            op,
            OpKind.HOST_TRANSFER,
            is_tpu_op=True,
            rewrite=infeed_outfeed.rewrite_outfeed_dequeue,
            renamed_outputs=_COMPONENTS,
        )
        for op in ("OutfeedDequeue", "OutfeedDequeueTuple")
    ),
)

_TPU_FRAME = (
    OpSpec(
        "TPUPartitionedCall",
        OpKind.TPU_FRAME,
        is_tpu_op=True,
        rewrite=_rewrite_partitioned_call,
    ),
    OpSpec(
        "TPUOrdinalSelector",
        OpKind.TPU_FRAME,
        is_tpu_op=True,
        rewrite=_rewrite_ordinal_selector,
        renamed_outputs={"device_ordinals": "output"},
    ),
    OpSpec(
        "TPUReplicateMetadata",
        OpKind.TPU_FRAME,
        is_tpu_op=True,
        rewrite=rewrite_as_no_op,
    ),
    # TPUCompilationResult is replaced by the empty string, which is a serialised
    # CompilationResultProto that reports success.
    OpSpec(
        "TPUCompilationResult",
        OpKind.TPU_FRAME,
        is_tpu_op=True,
        rewrite=rewrite_as_empty_string,
    ),
    OpSpec(
        "TPUReplicatedInput",
        OpKind.TPU_FRAME,
        is_tpu_op=True,
        rewrite=_rewrite_replicated_input,
    ),
    OpSpec(
        "TPUReplicatedOutput",
        OpKind.TPU_FRAME,
        is_tpu_op=True,
        rewrite=_rewrite_replicated_output,
        renamed_outputs={"outputs": "output"},
    ),
    OpSpec("XlaSharding", OpKind.TPU_FRAME, rewrite=rewrite_as_identity),
)

# The ops that start, stop and check the TPU system. On a CPU, there is no such system, so ops that
# do nothing replace them.
_TPU_SYSTEM = (
    # ConfigureDistributedTPU returns the topology of the TPU. On a CPU, it is replaced by an empty
    # string: programs get the topology in another way, and do not read the result.
    OpSpec(
        "ConfigureDistributedTPU",
        OpKind.TPU_SYSTEM,
        is_tpu_op=True,
        rewrite=rewrite_as_empty_string,
        renamed_outputs={"topology": "output"},
    ),
    *(
        OpSpec(op, OpKind.TPU_SYSTEM, is_tpu_op=True, rewrite=rewrite_as_no_op)
        for op in ("ShutdownDistributedTPU", "TPUCompileSucceededAssert")
    ),
)

# All other ops of the TPU runtime, from tensorflow/core/ops/tpu_*.cc and tensorflow/core/tpu. They
# cannot be replaced on a CPU.
_TPU_RUNTIME = tuple(
    OpSpec(pattern, OpKind.TPU_RUNTIME, is_tpu_op=True)
    for pattern in (
        "TPU*",
        "_TPU*",
        "*DistributedTPU*",
        "*TPUEmbedding*",
        "Infeed*",
        "Outfeed*",
        "Prelinearize*",
        "XlaSendToHost",
        "XlaRecvFromHost",
        "_XlaSendFromHost",
        "XlaHostCompute*",
        "_XlaHostCompute*",
        "WorkerHeartbeat",
    )
)

SPECS: dict[str, OpSpec] = {
    spec.op: spec
    for spec in (
        *_VALUES,
        *_VARIABLES,
        *_CALLS,
        *_REPLICAS,
        *_INFEED_AND_OUTFEED,
        *_TPU_FRAME,
        *_TPU_SYSTEM,
        *_TPU_RUNTIME,
    )
}
"""Op type, or pattern with `*` → its `OpSpec`. An exact op type takes precedence over patterns."""


def op_spec(op: str) -> OpSpec:
    """Return the `OpSpec` of an op type; an op not in the table computes or updates a variable."""
    spec = SPECS.get(op)
    return _spec_by_pattern(op) if spec is None else spec


@cache
def _spec_by_pattern(op: str) -> OpSpec:
    for pattern, spec in SPECS.items():
        if "*" in pattern and fnmatchcase(op, pattern):
            return spec
    # Ops that draw from a tf.random.Generator update a variable, its state. They do not count as
    # random, because all replicas update the state in the same way.
    updates = state_writes.updates_resource_variable(op)
    return OpSpec(op, OpKind.VARIABLE_UPDATE if updates else OpKind.COMPUTATION)


def is_tpu_op(op: str) -> bool:
    """Return whether an op belongs to the TPU runtime and has no CPU kernel."""
    return op_spec(op).is_tpu_op
