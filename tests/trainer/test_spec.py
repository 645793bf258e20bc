from typing import Any

import pytest
import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.spec import TPUEstimatorSpec, call_on_host

pytestmark = pytest.mark.slow

SCALAR = tf.constant(1.0)


@pytest.mark.parametrize(
    ("mode", "missing"),
    [("train", "loss and train_op"), ("eval", "loss"), ("infer", "predictions")],
)
def test_each_mode_names_what_it_misses(mode: str, missing: str) -> None:
    with pytest.raises(InvalidSetting, match=f"Missing {missing} in the TPUEstimatorSpec"):
        TPUEstimatorSpec(mode)


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="mode is 'fit'. Give one of train, eval, infer"):
        TPUEstimatorSpec("fit")


@pytest.mark.parametrize("pair", [len, (len,), (1, []), (len, 3), (len, [], 3)])
def test_eval_metrics_are_a_function_and_its_tensors(pair: Any) -> None:
    with pytest.raises(InvalidSetting, match="TPUEstimatorSpec eval_metrics"):
        TPUEstimatorSpec("eval", loss=SCALAR, eval_metrics=pair)


def test_hooks_must_be_session_run_hooks() -> None:
    with pytest.raises(InvalidSetting, match="training_hooks holds 'hook'"):
        TPUEstimatorSpec("train", loss=SCALAR, train_op=1, training_hooks=["hook"])
    hook = tf.compat.v1.train.SessionRunHook()
    assert TPUEstimatorSpec("train", loss=SCALAR, train_op=1, training_hooks=[hook])


def test_tensors_reach_a_host_function_by_position_or_by_name() -> None:
    def difference(a: int, b: int) -> int:
        return a - b

    assert call_on_host((difference, [5, 3])) == 2
    assert call_on_host((difference, {"b": 5, "a": 3})) == -2


@pytest.mark.parametrize("loss", [1.0, tf.constant([1.0, 2.0])], ids=["number", "vector"])
def test_a_loss_is_a_scalar_tensor(loss: Any) -> None:
    with pytest.raises(InvalidSetting, match="TPUEstimatorSpec loss .* Give a scalar"):
        TPUEstimatorSpec("eval", loss=loss)
