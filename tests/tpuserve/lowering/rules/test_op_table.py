"""The op table answers for every op, and imports no TensorFlow."""

import subprocess
import sys

import pytest

from tpuserve.lowering.rules.op_spec import OpKind
from tpuserve.lowering.rules.op_table import SPECS, is_tpu_op, op_spec


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        ("CrossReplicaSum", OpKind.COLLECTIVE),
        ("InfeedDequeueTuple", OpKind.INFEED_DEQUEUE),
        ("InfeedEnqueuePrelinearizedBuffer", OpKind.TPU_RUNTIME),
        ("AssignAddVariableOp", OpKind.VARIABLE_UPDATE),
        ("ResourceSparseApplyFtrlV2", OpKind.VARIABLE_UPDATE),
        ("StatefulStandardNormalV2", OpKind.VARIABLE_UPDATE),
        ("ReadVariableOp", OpKind.VARIABLE_READ),
        ("StatelessWhile", OpKind.LOOP),
        ("MatMul", OpKind.COMPUTATION),
        ("AssignVariable", OpKind.COMPUTATION),
    ],
)
def test_op_has_the_kind_of_its_record_or_of_its_family(op: str, kind: OpKind) -> None:
    assert op_spec(op).kind is kind


@pytest.mark.parametrize(
    "op",
    [
        "TPUExecute",
        "_TPUCompileMlir",
        "_ConfigureDistributedTPU",
        "XlaRecvTPUEmbeddingActivationsV2",
        "LoadTPUEmbeddingADAMParameters",
        "OutfeedDequeueTupleV2",
        "PrelinearizeTuple",
        "XlaSendToHost",
        "_XlaHostComputeMlir",
        "CollectivePermute",
        "TPUReplicatedOutput",
        "WorkerHeartbeat",
    ],
)
def test_op_of_the_tpu_runtime_is_a_tpu_op(op: str) -> None:
    assert is_tpu_op(op)


@pytest.mark.parametrize("op", ["MatMul", "XlaDot", "XlaReplicaId", "XlaSharding", "While", "f"])
def test_op_that_a_cpu_runs_is_not_a_tpu_op(op: str) -> None:
    assert not is_tpu_op(op)


@pytest.mark.parametrize("op", ["CrossReplicaSum", "InfeedDequeue", "OutfeedEnqueueTuple"])
def test_op_that_exchanges_data_communicates_and_is_lowered_jointly(op: str) -> None:
    assert op_spec(op).communicates
    assert op_spec(op).is_lowered_jointly


def test_replica_id_is_lowered_jointly_but_exchanges_no_data() -> None:
    assert op_spec("XlaReplicaId").is_lowered_jointly
    assert not op_spec("XlaReplicaId").communicates


def test_only_a_sum_over_replicas_is_a_reduction() -> None:
    assert {spec.op for spec in SPECS.values() if spec.is_reduction} == {"CrossReplicaSum"}


def test_every_op_that_is_lowered_jointly_says_how_replicas_may_differ_in_its_outputs() -> None:
    joint = [spec for spec in SPECS.values() if spec.is_lowered_jointly]
    assert {spec.op for spec in joint if spec.invariance is None} == {
        # These ops have no outputs, so nothing can differ.
        "OutfeedEnqueue",
        "OutfeedEnqueueTuple",
    }


def test_table_and_traits_import_no_tensorflow() -> None:
    program = "import sys, tpuserve.lowering.rules.op_traits; print('tensorflow' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout == "False\n"
