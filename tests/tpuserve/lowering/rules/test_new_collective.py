"""One record and one function make the lowering support another collective."""

from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.ops import while_v2

from tests.tpuserve.lowering import replicas
from tpuserve.lowering.ir.graph_ir import Value
from tpuserve.lowering.rules import op_table
from tpuserve.lowering.rules.op_spec import OpKind, OpSpec, ReplicatedOp

v1 = tf.compat.v1

both = pytest.mark.parametrize("compiled", [True, False])


def lower_collective_reduce(op: ReplicatedOp) -> list[list[Value]]:
    """Lower a CollectiveReduceV2: merge the values of all replicas, then apply final_op."""
    attributes = op.node.definition.attr
    dtype = attributes["T"].type
    result, *others = op.operand(0)
    binary = {b"Add": "AddV2", b"Mul": "Mul", b"Max": "Maximum", b"Min": "Minimum"}
    for value in others:
        result = op.make_node(binary[attributes["merge_op"].s], [result, value], T=dtype)
    if attributes["final_op"].s == b"Div":
        count = op.make_node("Const", [], value=float(op.num_replicas))
        result = op.make_node("RealDiv", [result, count], T=dtype)
    return [[result] * op.num_replicas]


@pytest.fixture(autouse=True)
def record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a record of CollectiveReduceV2 to the op table."""
    spec = OpSpec(
        "CollectiveReduceV2",
        OpKind.COLLECTIVE,
        lower_replicated=lower_collective_reduce,
        invariance=lambda node, nodes, num_replicas: True,
    )
    monkeypatch.setitem(op_table.SPECS, spec.op, spec)


def all_reduce(x: Any, merge_op: str = "Add", final_op: str = "Id") -> Any:
    return tf.raw_ops.CollectiveReduceV2(
        input=x,
        group_size=3,
        group_key=1,
        instance_key=1,
        ordering_token=[],
        merge_op=merge_op,
        final_op=final_op,
    )


@both
@pytest.mark.parametrize(
    ("merge_op", "final_op", "result"),
    [("Add", "Div", 4.0), ("Max", "Id", 9.0), ("Mul", "Id", 18.0)],
)
def test_new_collective_reduces_over_all_replicas(
    merge_op: str, final_op: str, result: float, compiled: bool
) -> None:
    results, _ = replicas.run_replicas(
        lambda x: all_reduce(x * 1.0, merge_op, final_op) + x * 0.0,
        [[1.0], [2.0], [9.0]],
        compiled=compiled,
    )
    assert results == [result] * 3


@both
def test_update_by_a_new_collective_is_made_once_on_all_replicas(compiled: bool) -> None:
    def computation(x: Any) -> Any:
        v = replicas.variable(value=1.0)
        with tf.control_dependencies([v.assign_add(all_reduce(x), read_value=False)]):
            return v.read_value() * x

    # The variable starts at 1, and each replica's part is 1, 2 or 3: 1 + (1 + 2 + 3).
    results, variables = replicas.run_replicas(
        computation, [[1.0], [2.0], [3.0]], compiled=compiled
    )
    assert results == [7.0, 14.0, 21.0]
    assert variables == {"v": 7.0}


def test_replicas_meet_in_a_loop_by_a_new_collective() -> None:
    def computation(x: Any) -> Any:
        def body(count: Any, value: Any) -> Any:
            return count + 1, all_reduce(value)

        return while_v2.while_loop(
            lambda count, _: count < 2, body, [tf.constant(0), x], return_same_structure=True
        )[1]

    # The values on the replicas are (1, 2, 3), then (6, 6, 6), then (18, 18, 18).
    results, _ = replicas.run_replicas(computation, [[1.0], [2.0], [3.0]])
    assert results == [18.0, 18.0, 18.0]
