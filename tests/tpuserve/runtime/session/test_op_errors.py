"""An error of an op has the op's code, and names the node."""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from tpuserve.errors import Code, InvalidTensor, ModelExecutionError
from tpuserve.runtime.session.signature_runner import SignatureRunner
from tpuserve.saved_model.signature import Signature, TensorSpec

v1 = tf.compat.v1
X = {"x": np.array([1], np.float32)}
SIGNATURE = Signature(
    {"x": TensorSpec("x:0", "float32", (None,))}, {"y": TensorSpec("y:0", "float32", (None,))}
)


def run(make_output: Callable[[tf.Tensor], tf.Tensor]) -> None:
    with tf.Graph().as_default() as graph:
        make_output(v1.placeholder(tf.float32, [None], "x"))
    with v1.Session(graph=graph) as session:
        SignatureRunner(session, SIGNATURE).run(X, None, None)


# The codes are those of TensorFlow for these exceptions.
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StopIteration, Code.OUT_OF_RANGE),
        (MemoryError, Code.RESOURCE_EXHAUSTED),
        (NotImplementedError, Code.UNIMPLEMENTED),
        (RuntimeError, Code.UNKNOWN),
    ],
)
def test_an_error_has_the_code_and_the_node_of_its_op(error: type[Exception], code: Code) -> None:
    def fail(x: np.ndarray) -> np.ndarray:
        raise error("no more")

    with pytest.raises(ModelExecutionError, match=r"no more \[\[\{\{node y\}\}\]\]") as caught:
        run(lambda x: v1.py_func(fail, [x], tf.float32, name="y"))
    assert caught.value.code is code


def test_an_error_about_shapes_names_the_shape_that_the_signature_expects() -> None:
    text = r"Incompatible shapes: \[3\] vs. \[2\] .*; input 'x' has the shape \[3\], and the "
    text += r"signature expects float32 \[2\]"
    signature = Signature({"x": TensorSpec("x:0", "float32", (2,))}, SIGNATURE.outputs)
    with tf.Graph().as_default() as graph:
        tf.add(v1.placeholder(tf.float32, [None], "x"), [1.0, 2.0], name="y")
    with v1.Session(graph=graph) as session, pytest.raises(InvalidTensor, match=text):
        SignatureRunner(session, signature).run({"x": np.ones([3], np.float32)}, None, None)
