"""Patterns of other people's graphs, as functions and as SavedModels of TensorFlow 1."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

X = np.array([[1, 2, 3, 4], [-1, 0, 1, 2]], np.float32)
SPEC = tf.TensorSpec([None, 4], tf.float32, name="x")


def jit_compiled() -> Any:
    """Return a function 2 x + 1 with jit_compile=True."""
    return tf.function(lambda x: {"y": 2.0 * x + 1.0}, jit_compile=True)


def nested_calls() -> Any:
    """Return a function 8 x: three nested functions that double x."""

    @tf.function
    def double(x: Any) -> Any:
        return 2.0 * x

    @tf.function
    def quadruple(x: Any) -> Any:
        return double(double(x))

    return tf.function(lambda x: {"y": quadruple(double(x))})


def control_dependencies() -> Any:
    """Return a function x + 1 whose result has a control input from a check."""

    def add(x: Any) -> Any:
        check = tf.debugging.assert_less(x, 100.0)
        with tf.control_dependencies([check] if check is not None else []):
            return {"y": x + 1.0}

    return tf.function(add)


def bfloat16_convolution() -> Any:
    """Return a function that convolves x, an image of 2 x 2, in bfloat16 with a kernel of ones."""

    def convolve(x: Any) -> Any:
        image = tf.cast(tf.reshape(x, [-1, 2, 2, 1]), tf.bfloat16)
        kernel = tf.ones([2, 2, 1, 1], tf.bfloat16)
        return {"y": tf.cast(tf.nn.conv2d(image, kernel, 1, "VALID")[:, 0, 0], tf.float32)}

    return tf.function(convolve)


PATTERNS: dict[str, tuple[Callable[[], Any], Any]] = {
    "jit_compile": (jit_compiled, 2 * X + 1),
    "nested calls": (nested_calls, 8 * X),
    "control dependencies": (control_dependencies, X + 1),
    "bfloat16 convolution": (bfloat16_convolution, X.sum(axis=1, keepdims=True)),
}


def write_version_1(base: Path, build: Callable[[], tuple[dict[str, Any], dict[str, Any]]]) -> Path:
    """Write a SavedModel of TensorFlow 1 with {serve} alone; return its directory."""
    with tf.Graph().as_default():
        inputs, outputs = build()
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.tables_initializer())
            builder = tf.compat.v1.saved_model.Builder(str(base / "1"))
            signature = tf.compat.v1.saved_model.predict_signature_def(inputs, outputs)
            builder.add_meta_graph_and_variables(
                session,
                ["serve"],
                {"serving_default": signature},
                main_op=tf.compat.v1.tables_initializer(),
            )
            builder.save()
    return base / "1"


def switch_and_merge() -> tuple[dict[str, Any], dict[str, Any]]:
    """Build a loop that doubles x while its sum is below 100, and a branch.

    The branch negates the result if its sum is below 110. Both use Switch and Merge.
    """
    x = tf.compat.v1.placeholder(tf.float32, [None, 4], "x")
    tf.compat.v1.disable_control_flow_v2()
    try:
        doubled = tf.compat.v1.while_loop(
            lambda value: tf.reduce_sum(value) < 100.0, lambda value: [2.0 * value], [x]
        )
        y = tf.compat.v1.cond(tf.reduce_sum(doubled) < 110.0, lambda: -doubled, lambda: doubled)
    finally:
        tf.compat.v1.enable_control_flow_v2()
    return {"x": x}, {"y": y}


def strings_tables_and_examples() -> tuple[dict[str, Any], dict[str, Any]]:
    """Build a graph that parses tf.Examples, splits their text, and adds scores of the words."""
    serialized = tf.compat.v1.placeholder(tf.string, [None], "examples")
    parsed = tf.io.parse_example(serialized, {"text": tf.io.FixedLenFeature([], tf.string)})
    words = tf.strings.split(parsed["text"]).to_tensor("")
    keys = tf.constant(["good", "bad"])
    values = tf.constant([1, -1], tf.int64)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), 0)
    score = tf.reduce_sum(table.lookup(words), axis=1)
    return {"examples": serialized}, {"score": score, "text": tf.as_string(score)}


def sparse_input() -> tuple[dict[str, Any], dict[str, Any]]:
    """Build a graph with a sparse input x, a dense output 2 x and the sparse output x."""
    x = tf.compat.v1.sparse_placeholder(tf.float32, [None, 4], "x")
    return {"x": x}, {"y": 2.0 * tf.sparse.to_dense(x), "z": x}


def example(text: bytes) -> bytes:
    """A serialized tf.Example with one text, for `strings_tables_and_examples`."""
    feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[text]))
    features = tf.train.Features(feature={"text": feature})
    return bytes(tf.train.Example(features=features).SerializeToString())


def write_ragged_input(directory: Path) -> None:
    """Write a SavedModel with the sums of the rows of a RaggedTensor."""
    module = tf.Module()
    spec = tf.RaggedTensorSpec([None, None], tf.float32)
    module.sums = tf.function(lambda x: {"y": tf.reduce_sum(x, axis=1)}, input_signature=[spec])
    tf.saved_model.save(module, str(directory), signatures=module.sums)


# The rows [1, 2] and [3], as their values and row splits.
RAGGED_PARTS: dict[str, np.ndarray[Any, Any]] = {
    "x": np.array([1, 2, 3], np.float32),
    "x_1": np.array([0, 2, 3], np.int64),
}
