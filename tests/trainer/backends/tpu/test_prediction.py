"""Prediction on an emulated TPU yields each row once, in the order of the input."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import trainer
from tests.trainer.backends.tpu import slope
from trainer import InputPipelineConfig, ModeKeys

v1 = tf.compat.v1


def _numbers(count: int) -> Any:
    def input_fn(params: Any) -> Any:
        x = np.arange(1, count + 1, dtype=np.float32).reshape([count, 1])
        return tf.data.Dataset.from_tensor_slices({"x": x}).batch(params["batch_size"])

    return input_fn


@pytest.fixture(scope="module")
def trained_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model_dir = tmp_path_factory.mktemp("model")
    with slope.tpu():
        slope.estimator(model_dir).train(slope.ones(), steps=1)  # w becomes 0.5.
    return model_dir


def _x(rows: Any) -> list[float]:
    return [float(row["x"][0]) for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("count", [1, 4, 10, 12])
def test_every_row_is_predicted_once_in_order(
    compiled: bool, count: int, trained_model_dir: Path
) -> None:
    with slope.tpu(4, compiled=compiled):
        rows = list(slope.estimator(trained_model_dir).predict(_numbers(count)))
    assert _x(rows) == list(range(1, count + 1))
    assert [float(row["y"][0]) for row in rows] == [number / 2 for number in range(1, count + 1)]


@pytest.mark.slow
@pytest.mark.on_pjrt_too
def test_predict_twice_on_one_estimator_and_leave_one_unfinished(trained_model_dir: Path) -> None:
    with slope.tpu():
        estimator_on_tpu = slope.estimator(trained_model_dir)
        unfinished: Any = estimator_on_tpu.predict(_numbers(40))
        assert _x([next(unfinished)]) == [1]
        unfinished.close()
        for _ in range(2):
            assert _x(estimator_on_tpu.predict(_numbers(5))) == [1, 2, 3, 4, 5]


def test_batches_and_chosen_predictions(trained_model_dir: Path) -> None:
    with slope.tpu():
        result = list(
            slope.estimator(trained_model_dir).predict(
                _numbers(6), predict_keys=["y"], yield_single_examples=False
            )
        )
    assert [prediction.keys() for prediction in result] == [{"y"}, {"y"}]
    assert [len(prediction["y"]) for prediction in result] == [4, 2]


@pytest.mark.on_pjrt_too
def test_the_model_is_told_which_rows_are_padding(trained_model_dir: Path) -> None:
    def more(features: Any, **_: Any) -> dict[str, Any]:
        is_padding = features["is_padding"]
        padded_rows = trainer.cross_replica_sum(tf.reduce_sum(is_padding))
        return {
            "predictions": {
                "is_padding": is_padding,
                "padded_rows": tf.fill(is_padding.shape, padded_rows),
            }
        }

    with slope.tpu():
        rows = list(slope.estimator(trained_model_dir, more).predict(_numbers(6)))
    # The input is a batch of 4 rows and one of 2, which 2 rows of padding fill up. Rows of padding
    # are not yielded.
    assert [row["is_padding"] for row in rows] == [0] * 6
    assert [row["padded_rows"] for row in rows] == [0, 0, 0, 0, 2, 2]


def test_predict_needs_no_train_batch_size(trained_model_dir: Path) -> None:
    with slope.tpu():
        estimator_on_tpu = trainer.TPUEstimator(
            slope.model_fn(),
            config=trainer.RunConfig(model_dir=str(trained_model_dir)),
            predict_batch_size=4,
        )
        assert _x(estimator_on_tpu.predict(_numbers(3))) == [1, 2, 3]


@pytest.mark.on_pjrt_too
@pytest.mark.parametrize(
    "per_host", [InputPipelineConfig.BROADCAST, InputPipelineConfig.PER_HOST_V2]
)
def test_every_input_mode_predicts_every_row(per_host: int, trained_model_dir: Path) -> None:
    with slope.tpu():
        estimator_on_tpu = slope.estimator(
            trained_model_dir, tpu_config={"per_host_input_for_training": per_host}
        )
        assert _x(estimator_on_tpu.predict(_numbers(7))) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.on_pjrt_too
def test_a_host_call_of_prediction_gets_the_real_rows(trained_model_dir: Path) -> None:
    calls: list[Any] = []

    def more(mode: str, y: Any, **_: Any) -> dict[str, Any]:
        assert mode == ModeKeys.PREDICT
        note = lambda array: calls.append(array.ravel().tolist())  # noqa: E731
        return {"host_call": (lambda y: tf.numpy_function(note, [y], []), [y])}

    with slope.tpu():
        list(slope.estimator(trained_model_dir, more).predict(_numbers(6)))
    assert calls == [[0.5, 1, 1.5, 2], [2.5, 3]]


class _Runs(tf.compat.v1.train.SessionRunHook):
    """Counts the calls of session.run."""

    count = 0

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Count a call of session.run."""
        self.count += 1


@pytest.mark.on_pjrt_too
def test_each_batch_is_a_run_whatever_the_length_of_a_loop(trained_model_dir: Path) -> None:
    hook = _Runs()
    with slope.tpu():
        estimator = slope.estimator(trained_model_dir, tpu_config={"iterations_per_loop": 100})
        batches = estimator.predict(_numbers(10), hooks=[hook], yield_single_examples=False)
        assert [(len(batch["x"]), hook.count) for batch in batches] == [(4, 1), (4, 2), (2, 3)]
    # The last run finds the end of the input.
    assert hook.count == 4
