"""Conversion of loops of TensorFlow 1 that read and write TensorArrays: they go to the TPU."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.tpuserve.export import answers
from tpuserve.export import convert

v1 = tf.compat.v1

# Two sequences of two steps of one number.
X = np.array([[[1.0], [2.0]], [[-3.0], [0.5]]], np.float32)


@pytest.fixture(autouse=True, params=["version_1", "version_2"])
def control_flow(request: pytest.FixtureRequest) -> Iterator[str]:
    """Let TensorFlow 1 build Enter, Switch and Merge, or While and If with TensorLists."""
    if request.param == "version_1":
        v1.disable_control_flow_v2()
    yield request.param
    v1.enable_control_flow_v2()


def weight() -> Any:
    return v1.get_variable("w", [1, 1], initializer=v1.constant_initializer(2.0))


def mapped(x: Any) -> Any:
    """Return 2 x, computed row by row."""
    return v1.map_fn(lambda row: row @ weight(), x)


def scanned(x: Any) -> Any:
    """Return the sums 2 s + x of each sequence, step by step."""
    steps = v1.scan(lambda total, step: total @ weight() + step, tf.transpose(x, [1, 0, 2]))
    return tf.transpose(steps, [1, 0, 2])


def unrolled(x: Any) -> Any:
    """Return 2 x of both steps, which an array collects without a loop."""
    array = tf.TensorArray(tf.float32, 2)
    for index in range(2):
        array = array.write(index, x[:, index] @ weight())
    return tf.transpose(array.stack(), [1, 0, 2])


class Doubling:
    """A cell of a recurrent network: doubles its state and adds its input."""

    state_size = output_size = 1

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        state = state @ weight() + inputs
        return state, state

    def zero_state(self, rows: Any, dtype: Any) -> Any:
        return tf.zeros([rows, 1], dtype)


def recurrent(x: Any) -> Any:
    """Run a recurrent network over sequences of two steps and one step."""
    return v1.nn.dynamic_rnn(Doubling(), x, sequence_length=[2, 1], dtype=tf.float32)[0]


def decoded(x: Any) -> Any:
    """Append doubled states to an array until all are above 5, in at most four turns."""
    array = tf.TensorArray(tf.float32, 4, element_shape=[2, 1])
    _, _, array = v1.while_loop(
        lambda i, state, _: (i < 4) & tf.reduce_any(state < 5.0),
        lambda i, state, array: (i + 1, state @ weight(), array.write(i, state)),
        (0, tf.abs(x[:, 0]), array),
    )
    return tf.transpose(array.stack(), [1, 0, 2])


def grown(x: Any) -> Any:
    """Double the states twice, and write them behind the end of an array."""
    array = tf.TensorArray(tf.float32, 0, dynamic_size=True)
    _, _, array = v1.while_loop(
        lambda i, *_: i < 2,
        lambda i, state, array: (i + 1, state @ weight(), array.write(i, state)),
        (0, x[:, 0], array),
    )
    return tf.transpose(array.stack(), [1, 0, 2]) @ weight()


def split(x: Any) -> Any:
    """Return twice the sums of the first step, and of the second and third of three steps."""
    array = tf.TensorArray(tf.float32, 2, infer_shape=False)
    array = array.split(tf.transpose(x @ weight(), [1, 0, 2]), [1, 2])
    return tf.stack([tf.reduce_sum(array.read(index), 0) for index in range(2)], 1)


def parsed(text: Any) -> Any:
    """Parse "1 2" to [[1], [2]], row by row, and double the numbers."""
    numbers = v1.map_fn(
        lambda row: tf.strings.to_number(tf.strings.split([row]).values), text, dtype=tf.float32
    )
    return tf.reshape(numbers, [-1, 2, 1]) @ weight()


def convert_model(build: Callable[[Any], Any], dtype: Any, directory: Path, **options: Any) -> Any:
    """Save and convert a model {"x": x} → {"y": build(x)}; return the converted signature."""
    shape = [None] if dtype == tf.string else [None, None, 1]
    with tf.Graph().as_default(), v1.Session() as session:
        with v1.variable_scope("model", reuse=v1.AUTO_REUSE):
            x = v1.placeholder(dtype, shape, name="x")
            y = build(x)
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(directory / "model"), {"x": x}, {"y": y})
    (signature,) = convert(directory / "model", directory / "out", **options).signatures
    return signature


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (mapped, [[2, 4], [-6, 1]]),
        (scanned, [[1, 4], [-3, -5.5]]),
        (unrolled, [[2, 4], [-6, 1]]),
        (recurrent, [[1, 4], [-3, 0]]),
        (decoded, [[1, 2, 4, 0], [3, 6, 12, 0]]),
    ],
)
def test_arrays_whose_size_follows_from_shapes_go_to_the_tpu(
    build: Callable[[Any], Any], expected: Any, tmp_path: Path
) -> None:
    signature = convert_model(build, tf.float32, tmp_path, whole=True)
    assert signature.num_host_ops == 0
    outputs = answers.both(str(tmp_path / "out"), x=X)
    np.testing.assert_allclose(outputs["y"][..., 0], expected)


@pytest.mark.slow
def test_an_array_that_can_grow_stays_on_the_host_with_this_reason(tmp_path: Path) -> None:
    signature = convert_model(grown, tf.float32, tmp_path)
    assert {op.reason for op in signature.host_ops} == {"its TensorArray can grow in a run"}
    outputs = answers.both(str(tmp_path / "out"), x=X)
    np.testing.assert_allclose(outputs["y"][..., 0], [[2, 4], [-6, -12]])


@pytest.mark.slow
def test_arrays_of_strings_stay_in_front_with_their_loop(control_flow: str, tmp_path: Path) -> None:
    signature = convert_model(parsed, tf.string, tmp_path)
    reasons = {op.op: op.reason for op in signature.host_ops}
    array = "TensorArrayV3" if control_flow == "version_1" else "TensorListFromTensor"
    assert reasons[array] == "strings"
    assert {op.place for op in signature.host_ops} == {"in front"}
    outputs = answers.both(str(tmp_path / "out"), x=answers.strings("1 2", "-3 0.5"))
    np.testing.assert_allclose(outputs["y"][..., 0], [[2, 4], [-6, 1]])


@pytest.mark.slow
def test_an_op_that_xla_refuses_in_a_trial_stays_on_the_host_with_its_array(tmp_path: Path) -> None:
    signature = convert_model(split, tf.float32, tmp_path)
    assert signature.num_tpu_ops > 0
    (reason,) = (op.reason for op in signature.host_ops if "Split" in op.op)
    assert reason.startswith("XLA cannot compile it: ")
    assert "lengths" in reason
    three_steps = np.concatenate([X, X[:, :1]], 1)
    outputs = answers.both(str(tmp_path / "out"), x=three_steps)
    np.testing.assert_allclose(outputs["y"][..., 0], [[2, 6], [-6, -5]])
