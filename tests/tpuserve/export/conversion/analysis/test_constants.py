"""Large constants become zeros of the same shape; small constants keep their values."""

import numpy as np
import tensorflow as tf

from tpuserve.export.conversion.analysis.constants import clear_large_constants


def test_large_constants_become_zeros_of_their_shape_and_small_ones_stay() -> None:
    with tf.Graph().as_default() as graph:
        tf.constant(np.ones((200, 100), np.float32), name="large")
        tf.constant([3, 4], name="small")
    cleared = clear_large_constants(graph.as_graph_def())
    assert cleared.ByteSize() < 1000
    large, small = (tf.make_ndarray(node.attr["value"].tensor) for node in cleared.node)
    assert (large.shape, large.dtype, large.max()) == ((200, 100), np.float32, 0)
    assert small.tolist() == [3, 4]


def test_functions_keep_everything_but_their_large_constants() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, 200], tf.float32)])
    def multiply(x: tf.Tensor) -> tf.Tensor:
        return x @ tf.constant(np.ones((200, 100), np.float32))

    with tf.Graph().as_default() as graph:
        multiply(tf.compat.v1.placeholder(tf.float32, [None, 200]))
    graph_def = graph.as_graph_def()
    cleared = clear_large_constants(graph_def)
    (before,), (after,) = graph_def.library.function, cleared.library.function
    assert after.ByteSize() < 5000 < before.ByteSize()
    for function in (before, after):
        for node in function.node_def:
            node.attr.pop("value", None)
    assert after == before
