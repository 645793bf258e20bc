"""The op table says how a collective of a step is replaced for PJRT devices."""

from typing import Any

import pytest
import tensorflow as tf

from tpuserve.errors import UnsupportedOnTpu
from tpuserve.lowering.rules import op_table
from tpuserve.lowering.rules.op_spec import OpKind, OpSpec
from tpuserve.pjrt.collectives import replace_collectives


def refuse(node: Any, function: str) -> None:
    raise UnsupportedOnTpu(f"{node.op} in {function!r}")


def replace_new_collective(monkeypatch: pytest.MonkeyPatch, reduction: str) -> Any:
    """Replace the only node of a graph, of an op that the op table has as a new collective."""
    spec = OpSpec("CrossReplicaMean", OpKind.COLLECTIVE, reduction=reduction)
    monkeypatch.setitem(op_table.SPECS, spec.op, spec)
    graph = tf.compat.v1.GraphDef()
    node = graph.node.add(name="mean", op=spec.op, input=["x", "groups"])
    replace_collectives(graph, {"mean": [2]}, refuse)
    return node


def test_new_reduction_becomes_the_xla_reduction_of_its_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = replace_new_collective(monkeypatch, "Mean")
    assert (node.op, node.attr["reduce_op"].s) == ("XlaAllReduce", b"Mean")
    assert list(node.input) == ["x", "groups"]


def test_new_collective_without_a_custom_call_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnsupportedOnTpu, match="CrossReplicaMean in ''"):
        replace_new_collective(monkeypatch, "")
