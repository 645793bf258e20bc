"""A deadline is kept where a run could outlast it, and costs little where it cannot."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpuserve.errors import DeadlineExceeded, InvalidInput, ModelExecutionError
from tpuserve.runtime.session.signature_runner import SignatureRunner
from tpuserve.saved_model.signature import Signature, TensorSpec

pytestmark = pytest.mark.slow

v1 = tf.compat.v1


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    """n → counted, by a loop of n steps; x → doubled, negated."""
    with tf.Graph().as_default() as graph:
        n = v1.placeholder(tf.int32, [], name="n")
        tf.identity(tf.while_loop(lambda i: i < n, lambda i: i + 1, [0]), name="counted")
        x = v1.placeholder(tf.float32, [None], name="x")
        tf.add(x, x, name="doubled")
        tf.negative(x, name="negated")
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
X = {"x": np.array([1, 2], np.float32)}


def test_run_that_is_too_long_is_stopped(session: Any) -> None:
    with pytest.raises(DeadlineExceeded, match="Timed out waiting for notification"):
        SignatureRunner(session, LOOP).run({"n": np.array(2**30, np.int32)}, None, 20)


def test_run_that_is_short_enough_is_answered(session: Any) -> None:
    assert (
        SignatureRunner(session, LOOP).run({"n": np.array(3, np.int32)}, None, 60_000)["counted"]
        == 3
    )


def test_deadline_that_has_passed_runs_nothing(session: Any) -> None:
    with pytest.raises(DeadlineExceeded):
        SignatureRunner(session, LOOP).run({"n": np.array(2**30, np.int32)}, None, 0)


def test_deadlines_may_be_turned_off(session: Any) -> None:
    entry_point = SignatureRunner(session, LOOP, keeps_deadlines=False)
    assert entry_point.run({"n": np.array(3, np.int32)}, None, 0)["counted"] == 3


@pytest.mark.parametrize("is_bounded", [True, False])
def test_only_a_bounded_run_of_known_length_goes_unwatched(session: Any, is_bounded: bool) -> None:
    watched = []

    class Watching(SignatureRunner):
        def _run_watched(self, wanted: Any, feeds: Any, time_ms: float) -> Any:
            watched.append(feeds[0].shape)
            return super()._run_watched(wanted, feeds, time_ms)

    entry_point = Watching(session, VECTOR, is_bounded=is_bounded)
    for values in ([1, 2], [3, 4], [1, 2, 3]):
        array = np.array(values, np.float32)
        answer = entry_point.run({"x": array}, ["doubled"], 3_600_000)
        assert answer["doubled"].tolist() == [2 * each for each in values]
    # Anything may be fast by chance, so the margin is an hour, and a run so long is none.
    assert watched == ([(2,), (3,)] if is_bounded else [(2,), (2,), (3,)])


def test_known_length_near_the_deadline_is_watched(session: Any) -> None:
    entry_point = SignatureRunner(session, VECTOR, is_bounded=True)
    entry_point.run(X, None, 3_600_000)
    with pytest.raises(DeadlineExceeded):
        entry_point.run(X, None, 0)


def test_chosen_outputs_are_answered_and_unknown_ones_refused(session: Any) -> None:
    entry_point = SignatureRunner(session, VECTOR)
    assert entry_point.run(X, ["negated"], None).keys() == {"negated"}
    assert entry_point.run(X, None, None).keys() == {"doubled", "negated"}
    with pytest.raises(InvalidInput, match="duplicate output tensor alias: negated"):
        entry_point.run(X, ["negated", "negated"], None)


def test_closed_one_runs_no_more(session: Any) -> None:
    entry_point = SignatureRunner(session, VECTOR)
    entry_point.close()
    with pytest.raises(ModelExecutionError, match="the model is closed"):
        entry_point.run(X, None, None)


def test_prepared_one_has_made_what_the_first_request_needs(session: Any) -> None:
    entry_point = SignatureRunner(session, VECTOR)
    entry_point.warm_up()
    made = dict(entry_point._callables)
    entry_point.run(X, None, None)
    assert entry_point._callables == made
    missing = Signature({}, {"y": TensorSpec("gone:0", "float32", ())})
    SignatureRunner(session, missing).warm_up()
