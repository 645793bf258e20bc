"""The table of the ops that the lowering treats specially, with an `OpSpec` for each of them.

The lowering turns a graph for a TPU into a graph for a CPU. To support another op, add an `OpSpec`
to the table, and write the function that replaces the op. An example of an `OpSpec` is

    OpSpec(
        "CrossReplicaSum",
        OpKind.COLLECTIVE,
        is_tpu_op=True,
        lower_replicated=collectives.lower_cross_replica_sum,
        invariance=collectives.is_full_all_reduce,
        reduction="Add",
    )

The table is used by the passes of the lowering, by the code that runs training steps on PJRT
devices, by the verification of exported models, and by the advice in error messages. On PJRT
devices, a collective op that is not a reduction also needs a custom call: add the custom call to
`tpuserve.pjrt.collectives` and to `tpuserve.stablehlo.spmd_collectives`.
"""

from fnmatch import fnmatchcase
from functools import cache

from tpuserve.graph import state_writes
from tpuserve.lowering.rules import collectives, infeed_outfeed, partitioned_call, replicate
from tpuserve.lowering.rules.node_rewriting import (
    rewrite_as_empty_string,
    rewrite_as_identity,
    rewrite_as_no_op,
)
from tpuserve.lowering.rules.op_spec import (
    OpKind,
    OpSpec,
    invariant_on_one_replica,
    never_invariant,
)

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
        lower_replicated=replicate.lower_replica_id,
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
        rewrite=partitioned_call.rewrite_partitioned_call,
    ),
    OpSpec(
        "TPUOrdinalSelector",
        OpKind.TPU_FRAME,
        is_tpu_op=True,
        rewrite=partitioned_call.rewrite_ordinal_selector,
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
        rewrite=replicate.rewrite_replicated_input,
    ),
    OpSpec(
        "TPUReplicatedOutput",
        OpKind.TPU_FRAME,
        is_tpu_op=True,
        rewrite=replicate.rewrite_replicated_output,
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
