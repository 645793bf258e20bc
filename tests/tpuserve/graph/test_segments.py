"""A graph that is imported in segments computes the same, whatever cycles and scopes it has."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpuserve.graph import segments
from tpuserve.runtime.session import graph_import

v1 = tf.compat.v1


def loop(x: Any) -> Any:
    """Double a tensor six times, in a cycle of nodes."""
    v1.disable_control_flow_v2()
    try:
        return v1.while_loop(lambda i, _: i < 6, lambda i, y: (i + 1, y * 2), [0, x])[1]
    finally:
        v1.enable_control_flow_v2()


def scopes(x: Any) -> Any:
    """Add slices; each slice is a node "a" that reads nodes "a/b"."""
    return sum(x[start : start + 1] for start in range(40))


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
def test_graph_imported_in_segments_computes_the_same(
    model: Callable[[Any], Any], y: float
) -> None:
    with tf.Graph().as_default() as whole:
        x = v1.placeholder(tf.float32, [None], name="x")
        tf.identity(model(x), name="y")
    parts = segments.split_graph(whole.as_graph_def(), {"x", "y"})
    graph, handles = tf.Graph(), graph_import.GraphHandles()
    for part in parts:
        graph_import.import_segment(graph, part, handles)
    with v1.Session(graph=graph) as session:
        feeds = {handles.tensor("x:0"): np.ones([40], np.float32)}
        (y_values,) = session._call_tf_sessionrun(None, feeds, [handles.tensor("y:0")], [], None)
    assert y_values[0] == y


def test_large_graph_is_split_into_small_segments() -> None:
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, name="x")
        for _ in range(1000):
            x = x + 1
    parts = segments.split_graph(graph.as_graph_def(), ["x"])
    assert len(parts) > 2000 // segments._MAX_NODES
    assert max(len(part.content) for part in parts) < 8000
    assert any("x" in part.retained_nodes for part in parts)


def test_node_that_is_not_retained_cannot_be_looked_up() -> None:
    with pytest.raises(ValueError, match="the graph has no node x"):
        graph_import.GraphHandles().tensor("x:0")
