"""A change of a variable waits for the reads that do not depend on the change."""

from typing import Any

from tpuserve.pjrt.read_order import read_before_changes
from tpuserve.proto import saved_model_pb2 as pb


def nodes(**inputs: tuple[str, list[str]]) -> Any:
    """Make the nodes of a graph: name=(op, inputs)."""
    return pb.GraphDef(
        node=[pb.NodeDef(name=name, op=op, input=sources) for name, (op, sources) in inputs.items()]
    ).node


def test_read_without_an_order_comes_before_the_change() -> None:
    graph = nodes(
        handle=("VarHandleOp", []),
        other=("VarHandleOp", []),
        forwarded=("Identity", ["handle"]),
        one=("Const", []),
        change=("AssignAddVariableOp", ["handle", "one"]),
        read=("ReadVariableOp", ["forwarded:0"]),
        read_other=("ReadVariableOp", ["other"]),
    )
    read_before_changes(graph)
    assert list(graph[4].input) == ["handle", "one", "^read"]


def test_read_that_waits_for_the_change_still_does() -> None:
    graph = nodes(
        handle=("VarHandleOp", []),
        one=("Const", []),
        change=("ResourceApplyGradientDescent", ["handle", "one", "one"]),
        done=("NoOp", ["^change"]),
        read=("ReadVariableOp", ["handle", "^done"]),
    )
    read_before_changes(graph)
    assert list(graph[2].input) == ["handle", "one", "one"]


def test_two_changes_and_the_read_between_them_keep_their_order() -> None:
    graph = nodes(
        handle=("VarHandleOp", []),
        one=("Const", []),
        first=("AssignVariableOp", ["handle", "one"]),
        read=("ReadVariableOp", ["handle", "^first"]),
        second=("AssignAddVariableOp", ["handle", "one"]),
    )
    read_before_changes(graph)
    assert list(graph[2].input) == ["handle", "one"]
    assert list(graph[4].input) == ["handle", "one", "^read"]
