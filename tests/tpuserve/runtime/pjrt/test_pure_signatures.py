"""`find_pure_signature` finds the signatures that one XLA cluster computes."""

import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tpuserve.runtime.pure_signatures import find_pure_signature
from tpuserve.saved_model.signature import Signature, TensorSpec
from tpuserve.stablehlo.abstract_tensor import AbstractTensor
from tpuserve.stablehlo.cluster_finder import XlaCluster


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


@pytest.mark.parametrize("constant", ["x", "c"])
def test_a_constant_of_a_function_is_no_input_whatever_its_name(constant: str) -> None:
    graph = graph_pb2.GraphDef()
    graph.node.add(name="x", op="Placeholder")
    call = graph.node.add(name="call", op="PartitionedCall", input=["x"])
    call.attr["f"].func.name = "outer"
    outer = graph.library.function.add()
    outer.signature.name = "outer"
    outer.signature.input_arg.add(name="argument")
    outer.signature.output_arg.add(name="result")
    outer.node_def.add(name=constant, op="Const")
    inner = outer.node_def.add(
        name="inner", op="PartitionedCall", input=["argument", f"{constant}:output:0"]
    )
    inner.attr["f"].func.name = "cluster"
    outer.ret["result"] = "inner:output:0"
    cluster = graph.library.function.add()
    cluster.signature.name = "cluster"
    cluster.ret["result"] = "y"
    row = AbstractTensor(tf.float32, (1,))
    x, y = TensorSpec("x:0", "float32", (None,)), TensorSpec("call:0", "float32", (None,))
    clusters = {"cluster": XlaCluster("cluster", (row, row))}
    assert find_pure_signature(graph, Signature({"x": x}, {"y": y}, ""), clusters) is None
