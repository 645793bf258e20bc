from collections import Counter
from collections.abc import Iterable

from tests.tpuserve.saved_models import add_function
from tpuserve.graph import graph_walk
from tpuserve.proto import saved_model_pb2 as pb


def call(node: pb.NodeDef, function: str) -> pb.NodeDef:
    node.attr["f"].func.name = function
    return node


def functions(graph: pb.GraphDef) -> dict[str, pb.FunctionDef]:
    return {each.signature.name: each for each in graph.library.function}


def ops(nodes: Iterable[pb.NodeDef]) -> Counter[str]:
    return Counter(each.op for each in nodes)


def test_a_tpu_call_is_found_below_many_functions_and_not_entered() -> None:
    graph = pb.GraphDef()
    call(graph.node.add(op="PartitionedCall"), "f0")
    for depth in range(2000):
        body = add_function(graph, f"f{depth}", "Add")
        call(body.node_def.add(op="PartitionedCall"), f"f{depth + 1}")
    call(add_function(graph, "f2000").node_def.add(op="TPUPartitionedCall"), "computation")
    add_function(graph, "computation", "MatMul")
    found = graph_walk.walk_graph(graph, functions(graph))
    assert found.tpu_calls == ["computation"]
    assert ops(found.on_host) == {"PartitionedCall": 2001, "Add": 2000, "TPUPartitionedCall": 1}


def test_functions_that_call_each_other_are_counted_once() -> None:
    graph = pb.GraphDef()
    call(graph.node.add(op="PartitionedCall"), "even")
    call(add_function(graph, "even", "Add").node_def.add(op="PartitionedCall"), "odd")
    call(add_function(graph, "odd", "Mul").node_def.add(op="PartitionedCall"), "even")
    found = graph_walk.walk_graph(graph, functions(graph))
    assert ops(found.on_host) == {"PartitionedCall": 3, "Add": 1, "Mul": 1}


def test_what_an_outside_compilation_calls_is_the_hosts_too() -> None:
    graph = pb.GraphDef()
    body = add_function(graph, "computation", "MatMul")
    host = call(body.node_def.add(op="PartitionedCall"), "helper")
    host.attr[graph_walk.HOST_ATTRIBUTE].s = b"0"
    call(body.node_def.add(op="PartitionedCall"), "helper")
    add_function(graph, "helper", "Add")
    found = graph_walk.walk_computation("computation", functions(graph))
    assert ops(found.on_tpu) == {"MatMul": 1, "PartitionedCall": 1, "Add": 1}
    assert ops(found.on_host) == {"PartitionedCall": 1, "Add": 1}


def test_what_lies_beside_the_cluster_of_a_rewrite_is_the_hosts() -> None:
    graph = pb.GraphDef()
    body = add_function(graph, "computation", "StringToNumber", "TPUReplicatedOutput", "Identity")
    matmul = body.node_def.add(op="While")
    matmul.attr["_tpu_replicate"].s = b"cluster"
    matmul.attr["body"].func.name = "body"
    add_function(graph, "body", "MatMul")
    found = graph_walk.walk_computation("computation", functions(graph))
    assert ops(found.on_host) == {"StringToNumber": 1}
    assert ops(found.on_tpu) == {
        "TPUReplicatedOutput": 1,
        "Identity": 1,
        "While": 1,
        "MatMul": 1,
    }


def test_a_function_that_is_not_there_has_no_nodes() -> None:
    found = graph_walk.walk_computation("gone", {})
    assert (found.on_tpu, found.on_host) == ([], [])
