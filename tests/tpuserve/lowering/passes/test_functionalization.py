"""The control flow of TensorFlow 1 becomes While and If ops, with the same results."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework.function import Defun

from tpuserve.lowering import lower
from tpuserve.lowering.ir import graph_ir, op_defs, outlining
from tpuserve.lowering.ir.graph_ir import Value
from tpuserve.lowering.passes.functionalization import functionalize
from tpuserve.lowering.passes.version_1_loops import OPS

v1 = tf.compat.v1

X = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


@pytest.fixture(autouse=True)
def control_flow_of_version_1() -> Any:
    v1.disable_control_flow_v2()
    yield
    v1.enable_control_flow_v2()


def loop(x: Any) -> Any:
    """Double x three times."""
    return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, 2.0 * y), (0, x))[1]


def loop_that_reads_a_value_from_outside(x: Any) -> Any:
    bias = x + 1.0
    return tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, y + bias), (0, x))[1]


def loop_whose_limit_comes_from_outside(x: Any) -> Any:
    limit = tf.cast(tf.reduce_max(x), tf.int32)
    return tf.while_loop(lambda i, _: i < limit, lambda i, y: (i + 1, y * y), (2, x))[1]


def loops_in_a_loop(x: Any) -> Any:
    def turn(i: Any, y: Any) -> Any:
        added = tf.while_loop(lambda j, _: j < i, lambda j, z: (j + 1, z + x), (0, y))[1]
        return i + 1, tf.while_loop(lambda j, _: j < 2, lambda j, z: (j + 1, z - 1.0), (0, added))[
            1
        ]

    return tf.while_loop(lambda i, _: i < 3, turn, (0, x))[1]


def loop_after_a_loop(x: Any) -> Any:
    return loop(loop(x))


def branch(x: Any) -> Any:
    return v1.cond(tf.reduce_sum(x) > 5.0, lambda: x * 2.0, lambda: x - 1.0)


def branch_not_taken(x: Any) -> Any:
    return v1.cond(tf.reduce_sum(x) > 50.0, lambda: x * 2.0, lambda: x - 1.0)


def branch_with_constants(x: Any) -> Any:
    return x + v1.cond(x[0, 0] > 0.0, lambda: tf.constant(1.0), lambda: tf.constant(2.0))


def branch_with_two_results(x: Any) -> Any:
    a, b = v1.cond(x[0, 0] > 0.0, lambda: (x, x + 1.0), lambda: (x + 2.0, x))
    return a * b


def branches_of_one_condition(x: Any) -> Any:
    condition = x[0, 0] > 0.0
    first = v1.cond(condition, lambda: x + 1.0, lambda: x)
    return v1.cond(condition, lambda: first * 3.0, lambda: first)


def branch_in_a_branch(x: Any) -> Any:
    def inner() -> Any:
        return v1.cond(x[1, 1] > 9.0, lambda: x * 5.0, lambda: x * 7.0)

    return v1.cond(x[0, 0] > 0.0, inner, lambda: x)


def branch_in_a_loop(x: Any) -> Any:
    def turn(i: Any, y: Any) -> Any:
        return i + 1, v1.cond(i > 1, lambda: y * x, lambda: y + 1.0)

    return tf.while_loop(lambda i, _: i < 4, turn, (0, x))[1]


def loop_in_a_branch(x: Any) -> Any:
    return v1.cond(x[0, 0] > 0.0, lambda: loop(x), lambda: x)


def recurrent_network(x: Any) -> Any:
    """Run a recurrent loop with tensor arrays; its two rows have sequences of 2 and 3 steps."""
    state = tf.zeros([2, 2])
    inputs = tf.TensorArray(tf.float32, 3).unstack(tf.stack([x, x + 1.0, x + 2.0]))
    outputs = tf.TensorArray(tf.float32, 3)

    def step(time: Any, carry: Any, written: Any) -> Any:
        carry = tf.where([[time < 2], [time < 3]], tf.tanh(carry + inputs.read(time)), carry)
        return time + 1, carry, written.write(time, carry)

    return tf.while_loop(lambda time, *_: time < 3, step, (0, state, outputs))[2].stack()


def gradient_of_a_loop(x: Any) -> Any:
    """Differentiate three squares; the loop pushes their inputs on a stack."""
    y = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y * y / 4.0), (0, x))[1]
    return v1.gradients(y, x)[0]


ALL = [
    loop,
    loop_that_reads_a_value_from_outside,
    loop_whose_limit_comes_from_outside,
    loops_in_a_loop,
    loop_after_a_loop,
    branch,
    branch_not_taken,
    branch_with_constants,
    branch_with_two_results,
    branches_of_one_condition,
    branch_in_a_branch,
    branch_in_a_loop,
    loop_in_a_branch,
    recurrent_network,
    gradient_of_a_loop,
]


@pytest.mark.numeric
@pytest.mark.parametrize("build", ALL)
def test_functional_control_flow_computes_the_same(build: Callable[[Any], Any]) -> None:
    graph_def, expected = run_as_built(build)
    assert {node.op for node in graph_def.node} & OPS
    functional = functional_graph(graph_def)
    assert not {node.op for node in functional.node} & OPS
    for function in functional.library.function:
        assert not {node.op for node in function.node_def} & OPS
    np.testing.assert_allclose(run_graph(functional), expected, rtol=1e-6)


@pytest.mark.numeric
@pytest.mark.parametrize("build", [loop, branch_in_a_loop, recurrent_network])
def test_xla_compiles_the_functional_graph(build: Callable[[Any], Any]) -> None:
    graph_def, expected = run_as_built(build)
    compiled = call_through_xla(functional_graph(graph_def))
    np.testing.assert_allclose(run_graph(compiled), expected, rtol=1e-5)


@pytest.mark.numeric
@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("build", [branch_in_a_loop, recurrent_network])
def test_computation_of_an_old_exporter_is_lowered(
    build: Callable[[Any], Any], is_compiled: bool
) -> None:
    _, expected = run_as_built(build)
    computation = Defun(tf.float32, func_name="computation")(
        lambda x: tf.identity(build(tf.ensure_shape(x, [2, 2])))
    )
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [2, 2], name="x")
        computation.add_to_graph(graph)
        call = tf.raw_ops.TPUPartitionedCall(
            args=[x], device_ordinal=0, Tout=[tf.float32], f=computation
        )
        tf.identity(call[0], "y")
    lowered = lower(graph.as_graph_def(), compiled=is_compiled)
    np.testing.assert_allclose(run_graph(lowered), expected, rtol=1e-5)


def test_graph_without_control_flow_is_returned_as_it_is() -> None:
    graph = graph_ir.from_node_defs([])
    assert functionalize(graph, {}).graph is graph


def run_as_built(build: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Build and run a graph; return its GraphDef and the value of its output, the tensor y:0."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [2, 2], name="x")
        y = tf.identity(build(x), "y")
        with v1.Session() as session:
            return graph.as_graph_def(), session.run(y, {x: X})


def functional_graph(graph_def: Any) -> Any:
    """Return a GraphDef with functional control flow and only the nodes that y depends on."""
    op_defs.restore_default_attrs(graph_def)
    library = {function.signature.name: function for function in graph_def.library.function}
    graph = functionalize(graph_ir.from_node_defs(graph_def.node), library).graph
    result = type(graph_def)(versions=graph_def.versions)
    graph_ir.append_node_defs(graph.nodes.values(), result.node)
    for node in result.node:
        # This would keep the original loop: a stack is placed with a node of the loop.
        node.attr.pop("_class", None)
    result = v1.graph_util.extract_sub_graph(result, ["x", "y"])
    result.library.function.extend(library.values())
    return result


def run_graph(graph_def: Any) -> Any:
    with tf.Graph().as_default(), v1.Session() as session:
        tf.import_graph_def(graph_def, name="")
        return session.run("y:0", {"x:0": X})


def call_through_xla(graph_def: Any) -> Any:
    """Return a graph that calls everything between x and y as one XLA computation."""
    library = {function.signature.name: function for function in graph_def.library.function}
    body = graph_ir.from_node_defs(node for node in graph_def.node if node.name != "x")
    body.arguments["x"] = types_pb2.DT_FLOAT
    body.results.append(Value("y"))
    called = graph_ir.to_function_def(body, "called", library)
    caller = v1.GraphDef(versions=graph_def.versions)
    caller.node.extend(node for node in graph_def.node if node.name == "x")
    call = outlining.make_call("called", called, must_compile=True)
    call.name = "y"
    call.input.append("x")
    caller.node.append(call)
    caller.library.function.extend([called, *library.values()])
    return caller
