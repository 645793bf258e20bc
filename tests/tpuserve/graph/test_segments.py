"""A graph in pieces is the same graph, whatever circles and scopes it has."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpuserve.graph import segments
from tpuserve.runtime.session import graph_import

pytestmark = pytest.mark.slow

v1 = tf.compat.v1


def loop(x: Any) -> Any:
    """Six steps that double, as a circle of nodes."""
    v1.disable_control_flow_v2()
    try:
        return v1.while_loop(lambda i, _: i < 6, lambda i, y: (i + 1, y * 2), [0, x])[1]
    finally:
        v1.enable_control_flow_v2()


def scopes(x: Any) -> Any:
    """Slices, each a node "a" that reads nodes "a/b"."""
    return sum(x[each : each + 1] for each in range(40))


def function(x: Any) -> Any:
    inner = tf.function(lambda y: y + 1)
    return tf.function(lambda y: inner(y) * 2)(x)


def control(x: Any) -> Any:
    with tf.control_dependencies([tf.debugging.assert_greater(x, -1.0)]):
        for _ in range(200):
            x = x + 1
    with tf.control_dependencies([x.op]):
        return tf.identity(x)


@pytest.mark.parametrize(
    ("model", "y"), [(loop, 64.0), (scopes, 40.0), (function, 4.0), (control, 201.0)]
)
def test_graph_of_pieces_computes_the_same(model: Callable[[Any], Any], y: float) -> None:
    with tf.Graph().as_default() as whole:
        x = v1.placeholder(tf.float32, [None], name="x")
        tf.identity(model(x), name="y")
    cut = segments.split_graph(whole.as_graph_def(), {"x", "y"})
    graph, handles = tf.Graph(), graph_import.GraphHandles()
    for each in cut:
        graph_import.import_segment(graph, each, handles)
    with v1.Session(graph=graph) as session:
        fed = {handles.tensor("x:0"): np.ones([40], np.float32)}
        (found,) = session._call_tf_sessionrun(None, fed, [handles.tensor("y:0")], [], None)
    assert found[0] == y


def test_large_graph_is_cut_small() -> None:
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, name="x")
        for _ in range(1000):
            x = x + 1
    found = segments.split_graph(graph.as_graph_def(), ["x"])
    assert len(found) > 2000 // segments._NODES
    assert max(len(each.content) for each in found) < 8000
    assert [each.retained for each in found if "x" in each.retained]


def test_node_that_nobody_asks_for_is_not_to_be_had() -> None:
    with pytest.raises(ValueError, match="the graph has no node x"):
        graph_import.GraphHandles().tensor("x:0")
