"""A run with a deadline stops in time; a predictable run stays in the calling thread."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpuserve.errors import DeadlineExceeded, InvalidInput, ModelExecutionError
from tpuserve.runtime.session.signature_runner import SignatureRunner
from tpuserve.saved_model.signature import Signature, TensorSpec

v1 = tf.compat.v1


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    """Yield a session whose graph counts to n in a loop, and doubles and negates x."""
    with tf.Graph().as_default() as graph:
        n = v1.placeholder(tf.int32, [], name="n")
        tf.identity(tf.while_loop(lambda i: i < n, lambda i: i + 1, [0]), name="counted")
        x = v1.placeholder(tf.float32, [None], name="x")
        tf.add(x, x, name="doubled")
        tf.negative(x, name="negated")
        tf.strings.join(["v", tf.strings.as_string(tf.size(x))], name="version")
    with v1.Session(graph=graph) as session:
        yield session


LOOP = Signature(
    {"n": TensorSpec("n:0", "int32", ())}, {"counted": TensorSpec("counted:0", "int32", ())}
)
VECTOR = Signature(
    {"x": TensorSpec("x:0", "float32", (None,))},
    {
        "doubled": TensorSpec("doubled:0", "float32", (None,)),
        "negated": TensorSpec("negated:0", "float32", (None,)),
    },
)
TEXT = Signature(VECTOR.inputs, {"version": TensorSpec("version:0", "string", ())})
X = {"x": np.array([1, 2], np.float32)}
ECHO = Signature(VECTOR.inputs, {"key": VECTOR.inputs["x"], "y": VECTOR.outputs["doubled"]})


def test_run_past_its_deadline_is_stopped(session: Any) -> None:
    with pytest.raises(DeadlineExceeded, match="Timed out waiting for notification"):
        SignatureRunner(session, LOOP).run({"n": np.array(2**30, np.int32)}, None, 20)


def test_run_within_its_deadline_returns_its_outputs(session: Any) -> None:
    runner = SignatureRunner(session, LOOP)
    assert runner.run({"n": np.array(3, np.int32)}, None, 60_000)["counted"] == 3


def test_deadline_in_the_past_is_exceeded_at_once(session: Any) -> None:
    with pytest.raises(DeadlineExceeded):
        SignatureRunner(session, LOOP).run({"n": np.array(2**30, np.int32)}, None, 0)


def test_deadlines_can_be_ignored(session: Any) -> None:
    runner = SignatureRunner(session, LOOP, enforces_deadlines=False)
    assert runner.run({"n": np.array(3, np.int32)}, None, 0)["counted"] == 3


@pytest.mark.parametrize("has_static_cost", [True, False])
def test_only_a_run_of_predictable_duration_stays_in_the_calling_thread(
    session: Any, has_static_cost: bool
) -> None:
    pooled_shapes = []

    class RecordingRunner(SignatureRunner):
        def _run_in_deadline_pool(self, outputs: Any, feeds: Any, *args: Any) -> Any:
            pooled_shapes.append(feeds[0].shape)
            return super()._run_in_deadline_pool(outputs, feeds, *args)

    runner = RecordingRunner(session, VECTOR, has_static_cost=has_static_cost)
    for values in ([1, 2], [3, 4], [1, 2, 3]):
        array = np.array(values, np.float32)
        answer = runner.run({"x": array}, ["doubled"], 3_600_000)
        assert answer["doubled"].tolist() == [2 * value for value in values]
    assert pooled_shapes == ([(2,), (3,)] if has_static_cost else [(2,), (2,), (3,)])


def test_deadline_in_the_past_is_exceeded_by_a_predictable_run_too(session: Any) -> None:
    runner = SignatureRunner(session, VECTOR, has_static_cost=True)
    runner.run(X, None, 3_600_000)
    with pytest.raises(DeadlineExceeded):
        runner.run(X, None, 0)


def test_requested_outputs_are_returned_and_duplicates_refused(session: Any) -> None:
    runner = SignatureRunner(session, VECTOR)
    assert runner.run(X, ["negated"], None).keys() == {"negated"}
    assert runner.run(X, None, None).keys() == {"doubled", "negated"}
    with pytest.raises(InvalidInput, match="duplicate output tensor alias: negated"):
        runner.run(X, ["negated", "negated"], None)


def test_closed_runner_refuses_to_run(session: Any) -> None:
    runner = SignatureRunner(session, VECTOR)
    runner.close()
    with pytest.raises(ModelExecutionError, match="the model is closed"):
        runner.run(X, None, None)


def test_warm_up_creates_the_callable_of_the_first_request(session: Any) -> None:
    runner = SignatureRunner(session, VECTOR)
    runner.warm_up()
    callables = dict(runner._callables)
    runner.run(X, None, None)
    assert runner._callables == callables
    missing = Signature({}, {"y": TensorSpec("gone:0", "float32", ())})
    SignatureRunner(session, missing).warm_up()


@pytest.mark.parametrize("timeout_ms", [None, 60_000])
def test_a_string_without_dimensions_is_an_array(session: Any, timeout_ms: float | None) -> None:
    version = SignatureRunner(session, TEXT).run(X, None, timeout_ms)["version"]
    assert (version.dtype, version.shape, version.item()) == (np.dtype(object), (), b"v2")


@pytest.mark.parametrize("timeout_ms", [None, 60_000])
def test_an_output_that_is_an_input_has_the_value_that_was_fed(
    session: Any, timeout_ms: float | None
) -> None:
    runner = SignatureRunner(session, ECHO)
    runner.warm_up()
    outputs = runner.run(X, None, timeout_ms)
    assert {alias: value.tolist() for alias, value in outputs.items()} == {
        "key": [1, 2],
        "y": [2, 4],
    }
    assert runner.run(X, ["key"], timeout_ms)["key"].tolist() == [1, 2]
