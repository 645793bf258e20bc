from collections import Counter
from collections.abc import Iterable

from tests.tpuserve.saved_models import add_function
from tpuserve.graph import graph_walk
from tpuserve.proto import saved_model_pb2 as pb


def call(node: pb.NodeDef, function: str) -> pb.NodeDef:
    node.attr["f"].func.name = function
    return node


def functions(graph: pb.GraphDef) -> dict[str, pb.FunctionDef]:
    return {function.signature.name: function for function in graph.library.function}


def ops(nodes: Iterable[pb.NodeDef]) -> Counter[str]:
    return Counter(node.op for node in nodes)


def test_tpu_call_below_many_functions_is_listed_and_not_entered() -> None:
    graph = pb.GraphDef()
    call(graph.node.add(op="PartitionedCall"), "f0")
    for depth in range(2000):
        body = add_function(graph, f"f{depth}", "Add")
        call(body.node_def.add(op="PartitionedCall"), f"f{depth + 1}")
    call(add_function(graph, "f2000").node_def.add(op="TPUPartitionedCall"), "computation")
    add_function(graph, "computation", "MatMul")
    nodes = graph_walk.walk_graph(graph, functions(graph))
    assert nodes.tpu_calls == ["computation"]
    assert ops(nodes.on_host) == {"PartitionedCall": 2001, "Add": 2000, "TPUPartitionedCall": 1}


def test_functions_that_call_each_other_are_visited_once() -> None:
    graph = pb.GraphDef()
    call(graph.node.add(op="PartitionedCall"), "even")
    call(add_function(graph, "even", "Add").node_def.add(op="PartitionedCall"), "odd")
    call(add_function(graph, "odd", "Mul").node_def.add(op="PartitionedCall"), "even")
    nodes = graph_walk.walk_graph(graph, functions(graph))
    assert ops(nodes.on_host) == {"PartitionedCall": 3, "Add": 1, "Mul": 1}


def test_functions_that_an_outside_compilation_calls_run_on_the_host() -> None:
    graph = pb.GraphDef()
    body = add_function(graph, "computation", "MatMul")
    host = call(body.node_def.add(op="PartitionedCall"), "helper")
    host.attr[graph_walk.HOST_ATTRIBUTE].s = b"0"
    call(body.node_def.add(op="PartitionedCall"), "helper")
    add_function(graph, "helper", "Add")
    nodes = graph_walk.walk_computation("computation", functions(graph))
    assert ops(nodes.on_tpu) == {"MatMul": 1, "PartitionedCall": 1, "Add": 1}
    assert ops(nodes.on_host) == {"PartitionedCall": 1, "Add": 1}


def test_nodes_outside_the_cluster_of_a_rewrite_run_on_the_host() -> None:
    graph = pb.GraphDef()
    body = add_function(graph, "computation", "StringToNumber", "TPUReplicatedOutput", "Identity")
    matmul = body.node_def.add(op="While")
    matmul.attr["_tpu_replicate"].s = b"cluster"
    matmul.attr["body"].func.name = "body"
    add_function(graph, "body", "MatMul")
    nodes = graph_walk.walk_computation("computation", functions(graph))
    assert ops(nodes.on_host) == {"StringToNumber": 1}
    assert ops(nodes.on_tpu) == {
        "TPUReplicatedOutput": 1,
        "Identity": 1,
        "While": 1,
        "MatMul": 1,
    }


def test_missing_function_has_no_nodes() -> None:
    nodes = graph_walk.walk_computation("gone", {})
    assert (nodes.on_tpu, nodes.on_host) == ([], [])


def test_called_functions_are_found_through_attributes_and_op_types() -> None:
    graph = pb.GraphDef()
    call(graph.node.add(op="PartitionedCall"), "outer")
    add_function(graph, "outer", "inner")
    call(add_function(graph, "inner").node_def.add(op="While"), "outer")
    add_function(graph, "uncalled", "outer")
    called = graph_walk.find_called_functions(graph.node, functions(graph))
    assert called == {"outer", "inner"}
