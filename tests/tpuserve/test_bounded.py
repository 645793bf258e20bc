"""Only what depends on shapes alone counts as bounded."""

import pytest

from tpuserve import bounded
from tpuserve.proto import saved_model_pb2 as pb

Node = tuple[str, str, list[str]]


def graph_of(*nodes: Node) -> pb.GraphDef:
    graph = pb.GraphDef()
    for name, op, inputs in nodes:
        graph.node.add(name=name, op=op, input=inputs)
    return graph


HALF_PLUS_TWO: tuple[Node, ...] = (
    ("x", "Placeholder", []),
    ("half", "Const", []),
    ("y", "Mul", ["x:0", "half"]),
)


def test_arithmetic_is_bounded_whatever_else_the_graph_holds() -> None:
    graph = graph_of(*HALF_PLUS_TWO, ("save", "SaveV2", []))
    assert bounded.is_bounded(graph, ["y:0"])


def test_loop_is_not() -> None:
    graph = graph_of(*HALF_PLUS_TWO, ("z", "While", ["y"]), ("w", "Identity", ["z:1"]))
    assert not bounded.is_bounded(graph, ["y:0", "w:0"])


def test_what_waits_before_an_op_counts() -> None:
    graph = graph_of(
        ("x", "Placeholder", []), ("q", "QueueDequeueV2", []), ("y", "Neg", ["x", "^q"])
    )
    assert not bounded.is_bounded(graph, ["y:0"])


def test_called_functions_count() -> None:
    graph = graph_of(("x", "Placeholder", []), ("y", "PartitionedCall", ["x"]))
    graph.node[1].attr["f"].func.name = "outer"
    for name, op in (("outer", "StatefulPartitionedCall"), ("inner", "Neg")):
        function = graph.library.function.add()
        function.signature.name = name
        function.node_def.add(name="n", op=op)
    graph.library.function[0].node_def[0].attr["f"].func.name = "inner"
    assert bounded.is_bounded(graph, ["y:0"])
    graph.library.function[1].node_def[0].op = "Range"
    assert not bounded.is_bounded(graph, ["y:0"])


def test_tensor_or_function_that_is_not_there_is_not_bounded() -> None:
    assert not bounded.is_bounded(graph_of(*HALF_PLUS_TWO), ["z:0"])
    graph = graph_of(("y", "PartitionedCall", []))
    graph.node[0].attr["f"].func.name = "gone"
    assert not bounded.is_bounded(graph, ["y:0"])


def test_size_that_shapes_tell_is_bounded() -> None:
    sizes: tuple[Node, ...] = (
        ("axis", "Const", []),
        ("shape", "Shape", ["x"]),
        ("rows", "Gather", ["shape", "axis"]),
    )
    graph = graph_of(*HALF_PLUS_TWO, *sizes, ("z", "Tile", ["y", "rows"]))
    assert bounded.is_bounded(graph, ["z:0"])


@pytest.mark.parametrize("size", ["x", "y", "variable", "function", "drawn", "gone"])
def test_size_that_values_tell_is_not(size: str) -> None:
    others: tuple[Node, ...] = (
        ("handle", "VarHandleOp", []),
        ("variable", "ReadVariableOp", ["handle"]),
        ("function", "PartitionedCall", ["half"]),
        ("drawn", "RandomUniformInt", ["half"]),
        ("size", "Cast", [size]),
        ("z", "Tile", ["y", "size"]),
    )
    assert not bounded.is_bounded(graph_of(*HALF_PLUS_TWO, *others), ["z:0"])


def test_sizes_within_a_function_count() -> None:
    graph = graph_of(("x", "Placeholder", []), ("y", "PartitionedCall", ["x"]))
    graph.node[1].attr["f"].func.name = "tiled"
    function = graph.library.function.add()
    function.signature.name = "tiled"
    function.node_def.add(name="sizes", op="Const")
    function.node_def.add(name="n", op="Tile", input=["argument", "sizes:output:0"])
    assert bounded.is_bounded(graph, ["y:0"])
    function.node_def[1].input[1] = "argument"
    assert not bounded.is_bounded(graph, ["y:0"])
