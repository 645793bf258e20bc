"""The models that the benchmarks serve, and the inputs of their requests."""

from pathlib import Path
from typing import Any

import numpy as np


def half_plus_two_input() -> Any:
    """Return the input of a small request: three numbers, shape [3], float32."""
    return np.array([1, 2, 5], np.float32)


def mnist_input() -> Any:
    """Return one image of random pixels: shape [1, 28, 28, 1], float32."""
    return np.random.default_rng(1).random((1, 28, 28, 1), np.float32)


def dense_input() -> Any:
    """Return one row of random numbers: shape [1, 8], float32."""
    return np.random.default_rng(1).random((1, 8), np.float32)


def save_dense(directory: Path, layers: int) -> None:
    """Export a network of dense layers of 512 units, whose weights take longer to read than rows.

    The input is x, shape [None, 8]; the output is y, shape [None, 512].
    """
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        x = y = tf.placeholder(tf.float32, [None, 8], name="x")
        for index in range(layers):
            weights = tf.get_variable(f"weights_{index}", [y.shape[1], 512])
            y = tf.nn.relu(tf.matmul(y, weights))
        session.run(tf.global_variables_initializer())
        tf.saved_model.simple_save(session, str(directory), {"x": x}, {"y": y})


def save_half_plus_two(directory: Path) -> None:
    """Export y = x / 2 + 2 as a SavedModel with input x, shape [None], and output y."""
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None], name="x")
        a, b = tf.Variable(0.5, name="a"), tf.Variable(2.0, name="b")
        session.run(tf.global_variables_initializer())
        tf.saved_model.simple_save(session, str(directory), {"x": x}, {"y": a * x + b})


def save_mnist_cnn(directory: Path) -> None:
    """Export a CNN for MNIST with random weights as a SavedModel.

    The model has two convolutions with 32 and 64 filters of 5x5, each with max pooling, and two
    dense layers with 128 and 10 units. The input is x, shape [None, 28, 28, 1]; the output is y,
    shape [None, 10].
    """
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        x = tf.placeholder(tf.float32, [None, 28, 28, 1], name="x")
        y = x
        for index, (inputs, filters) in enumerate([(1, 32), (32, 64)]):
            kernel = tf.get_variable(f"kernel_{index}", [5, 5, inputs, filters])
            y = tf.nn.relu(tf.nn.conv2d(y, kernel, 1, "SAME"))
            y = tf.nn.max_pool2d(y, 2, 2, "VALID")
        y = tf.reshape(y, [-1, 7 * 7 * 64])
        for index, (inputs, units) in enumerate([(7 * 7 * 64, 128), (128, 10)]):
            weights = tf.get_variable(f"weights_{index}", [inputs, units])
            y = tf.matmul(y, weights) if index else tf.nn.relu(tf.matmul(y, weights))
        session.run(tf.global_variables_initializer())
        tf.saved_model.simple_save(session, str(directory), {"x": x}, {"y": y})
