"""Loops are found in the graph and in its functions."""

import pytest

from tpuserve.graph.loops import has_loop
from tpuserve.proto import saved_model_pb2 as pb


@pytest.mark.parametrize(("op", "is_loop"), [("While", True), ("LoopCond", True), ("Mul", False)])
def test_loop_is_found_in_the_graph_and_in_functions(op: str, is_loop: bool) -> None:
    graph = pb.GraphDef()
    graph.node.add(name="a", op="PartitionedCall")
    function = graph.library.function.add()
    function.node_def.add(name="b", op=op)
    assert has_loop(graph) == is_loop
    del graph.library.function[:]
    assert not has_loop(graph)
    graph.node.add(name="b", op=op)
    assert has_loop(graph) == is_loop
