"""Only computations whose work depends on shapes alone have a static cost."""

from tpuserve.graph import static_cost
from tpuserve.proto import saved_model_pb2 as pb


def graph_of(*nodes: tuple[str, str, list[str]]) -> pb.GraphDef:
    graph = pb.GraphDef()
    for name, op, inputs in nodes:
        graph.node.add(name=name, op=op, input=inputs)
    return graph


HALF_PLUS_TWO: tuple[tuple[str, str, list[str]], ...] = (
    ("x", "Placeholder", []),
    ("half", "Const", []),
    ("y", "Mul", ["x:0", "half"]),
)


def test_arithmetic_has_static_cost_whatever_else_the_graph_holds() -> None:
    graph = graph_of(*HALF_PLUS_TWO, ("save", "SaveV2", []))
    assert static_cost.has_static_cost(graph, ["y:0"])


def test_loop_has_no_static_cost() -> None:
    graph = graph_of(*HALF_PLUS_TWO, ("z", "While", ["y"]), ("w", "Identity", ["z:1"]))
    assert not static_cost.has_static_cost(graph, ["y:0", "w:0"])


def test_control_inputs_count() -> None:
    graph = graph_of(
        ("x", "Placeholder", []), ("q", "QueueDequeueV2", []), ("y", "Neg", ["x", "^q"])
    )
    assert not static_cost.has_static_cost(graph, ["y:0"])


def test_called_functions_count() -> None:
    graph = graph_of(("x", "Placeholder", []), ("y", "PartitionedCall", ["x"]))
    graph.node[1].attr["f"].func.name = "outer"
    for name, op in (("outer", "StatefulPartitionedCall"), ("inner", "Neg")):
        function = graph.library.function.add()
        function.signature.name = name
        function.node_def.add(name="n", op=op)
    graph.library.function[0].node_def[0].attr["f"].func.name = "inner"
    assert static_cost.has_static_cost(graph, ["y:0"])
    graph.library.function[1].node_def[0].op = "Range"
    assert not static_cost.has_static_cost(graph, ["y:0"])


def test_missing_tensor_or_function_has_no_static_cost() -> None:
    assert not static_cost.has_static_cost(graph_of(*HALF_PLUS_TWO), ["z:0"])
    graph = graph_of(("y", "PartitionedCall", []))
    graph.node[0].attr["f"].func.name = "gone"
    assert not static_cost.has_static_cost(graph, ["y:0"])
