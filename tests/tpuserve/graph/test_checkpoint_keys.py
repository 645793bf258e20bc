"""The ops that restore a SavedModel's variables tell under which key each variable is stored."""

from typing import Any

from tensorflow.core.framework.graph_pb2 import GraphDef

from tpuserve.graph.checkpoint_keys import find_checkpoint_keys


def add_node(nodes: Any, name: str, op: str, *inputs: str) -> Any:
    return nodes.add(name=name, op=op, input=inputs)


def add_strings(nodes: Any, name: str, *values: bytes) -> None:
    tensor = add_node(nodes, name, "Const").attr["value"].tensor
    tensor.tensor_shape.dim.add().size = len(values)
    tensor.string_val.extend(values)


def add_restore(nodes: Any, slices: tuple[bytes, ...] = (b"", b"")) -> None:
    add_strings(nodes, "names", b"dense/kernel", b"dense/bias")
    add_strings(nodes, "slices", *slices)
    add_node(nodes, "restore", "RestoreV2", "prefix", "names", "slices")


def test_keys_come_from_the_restore_op_in_the_order_of_its_outputs() -> None:
    graph = GraphDef()
    add_restore(graph.node)
    for number, name in enumerate(["w", "b"]):
        handle = add_node(graph.node, name, "VarHandleOp")
        handle.attr["shared_name"].s = f"{name}_shared".encode()
        add_node(graph.node, f"value_{name}", "Identity", f"restore:{number}")
        add_node(graph.node, f"assign_{name}", "AssignVariableOp", name, f"value_{name}")
    assert find_checkpoint_keys(graph) == {"w_shared": "dense/kernel", "b_shared": "dense/bias"}


def test_restoring_inside_of_a_function_counts() -> None:
    graph = GraphDef()
    add_node(graph.node, "b", "VarHandleOp")
    call = add_node(graph.node, "call", "StatefulPartitionedCall", "prefix", "b")
    call.attr["f"].func.name = "restore_all"
    function = graph.library.function.add()
    function.signature.name = "restore_all"
    for argument in ("prefix", "handle"):
        function.signature.input_arg.add(name=argument)
    add_restore(function.node_def)
    add_node(function.node_def, "assign", "AssignVariableOp", "handle", "restore:tensors:1")
    assert find_checkpoint_keys(graph) == {"b": "dense/bias"}


def test_function_that_calls_itself_is_read_once() -> None:
    graph = GraphDef()
    add_node(graph.node, "b", "VarHandleOp")
    function = graph.library.function.add()
    function.signature.name = "again"
    function.signature.input_arg.add(name="handle")
    for nodes, handle in ((graph.node, "b"), (function.node_def, "handle")):
        add_node(nodes, "call", "PartitionedCall", handle).attr["f"].func.name = "again"
    assert find_checkpoint_keys(graph) == {}


def test_value_that_comes_from_a_cycle_of_identities_has_no_key() -> None:
    graph = GraphDef()
    add_node(graph.node, "b", "VarHandleOp")
    add_node(graph.node, "one", "Identity", "other")
    add_node(graph.node, "other", "Identity", "one")
    add_node(graph.node, "assign", "AssignVariableOp", "b", "one")
    assert find_checkpoint_keys(graph) == {}


def test_variable_that_is_restored_from_a_slice_has_no_key() -> None:
    graph = GraphDef()
    add_restore(graph.node, slices=(b"", b"10 4 0,5:-"))
    for number, name in enumerate(["w", "b"]):
        add_node(graph.node, name, "VarHandleOp")
        add_node(graph.node, f"assign_{name}", "AssignVariableOp", name, f"restore:{number}")
    assert find_checkpoint_keys(graph) == {"w": "dense/kernel"}
