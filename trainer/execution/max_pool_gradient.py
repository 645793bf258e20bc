"""Replaces gradients of max pooling by ops that XLA computes faster on a CPU.

XLA computes a MaxPoolGrad with a SelectAndScatter, which on a CPU takes twice the time of
TensorFlow's kernel.
"""

from typing import Any

import tensorflow as tf

_OP = "MaxPoolGrad"


def replace_max_pool_gradients(definition: Any, shapes: dict[str, Any]) -> None:
    """Replace each MaxPoolGrad node whose windows do not overlap by a call of a faster function.

    Args:
      shapes: name of a node → the tf.TensorShape of the pooling's input. A node without a fully
        known shape is not changed.
    """
    for node in definition.node:
        shape = shapes.get(node.name)
        if node.op != _OP or shape is None or not shape.is_fully_defined():
            continue
        window = tuple(node.attr["ksize"].list.i)
        if not _can_replace(node, window, shape.as_list()):
            continue
        function = _make_function(window[1], window[2], tf.as_dtype(node.attr["T"].type), shape)
        if all(
            function.signature.name != library_function.signature.name
            for library_function in definition.library.function
        ):
            definition.library.function.append(function)
        _call(node, function)


def _can_replace(node: Any, window: tuple[int, ...], shape: list[int]) -> bool:
    return (
        node.attr["data_format"].s in (b"", b"NHWC")
        and window[0] == window[3] == 1
        and window == tuple(node.attr["strides"].list.i)
        # Accept only inputs whose height and width are multiples of the window's height and width.
        # Then the padding does not matter: SAME adds no pixel, and VALID drops no pixel.
        and shape[1] % window[1] == 0
        and shape[2] % window[2] == 0
    )


def _make_function(height: int, width: int, dtype: Any, shape: Any) -> Any:
    """Return a FunctionDef that computes the gradient of max pooling by comparisons."""
    rows, columns = shape[1] // height, shape[2] // width
    pooled = tf.TensorShape([shape[0], rows, columns, shape[3]])

    def compute_gradient(inputs: Any, outputs: Any, gradient: Any) -> Any:
        windows = tf.reshape(inputs, [shape[0], rows, height, columns, width, shape[3]])
        is_taken = tf.zeros(pooled, tf.bool)
        zeros = tf.zeros(pooled, dtype)
        gradients = []
        for row in range(height):
            for column in range(width):
                # Give the gradient to the first of several equal maxima, as TensorFlow's kernel
                # does.
                is_maximum = tf.equal(windows[:, :, row, :, column, :], outputs)
                is_first = tf.logical_and(is_maximum, tf.logical_not(is_taken))
                gradients.append(tf.where(is_first, gradient, zeros))
                is_taken = tf.logical_or(is_taken, is_maximum)
        stacked = tf.reshape(
            tf.stack(gradients, axis=3), [shape[0], rows, columns, height, width, shape[3]]
        )
        return tf.reshape(tf.transpose(stacked, [0, 1, 3, 2, 4, 5]), shape)

    specs = [tf.TensorSpec(tensor_shape, dtype) for tensor_shape in (shape, pooled, pooled)]
    function: Any = tf.function(compute_gradient, autograph=False)
    return function.get_concrete_function(*specs).function_def


def _call(node: Any, function: Any) -> None:
    dtype = node.attr["T"].type
    node.op = "PartitionedCall"
    node.attr.clear()
    node.attr["f"].func.name = function.signature.name
    node.attr["Tin"].list.type.extend([dtype] * 3)
    node.attr["Tout"].list.type.extend([dtype])
    for name in ("config", "config_proto", "executor_type"):
        node.attr[name].s = b""
