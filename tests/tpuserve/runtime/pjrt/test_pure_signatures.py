"""`find_pure_signature` finds the signatures that one XLA cluster computes."""

import pytest
from tensorflow.core.framework import graph_pb2

from tpuserve.runtime.pjrt.pure_signatures import find_pure_signature
from tpuserve.saved_model.signature import Signature, TensorSpec

pytestmark = pytest.mark.slow


def test_call_behind_a_deep_chain_of_other_ops_is_no_pure_signature() -> None:
    graph = graph_pb2.GraphDef()
    graph.node.add(name="op0", op="Placeholder")
    for index in range(5000):
        graph.node.add(name=f"op{index + 1}", op="Neg", input=[f"op{index}"])
    call = graph.node.add(name="call", op="PartitionedCall", input=["op5000"])
    call.attr["f"].func.name = "function"
    graph.library.function.add().signature.name = "function"
    x, y = TensorSpec("op0:0", "float32", (None,)), TensorSpec("call:0", "float32", (None,))
    assert find_pure_signature(graph, Signature({"x": x}, {"y": y}, ""), {}) is None
