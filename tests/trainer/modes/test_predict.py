from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import trainer
from tests.trainer import programs
from tpuserve.errors import CheckpointNotFound, InvalidSetting


def count_input_fn() -> Any:
    x = tf.constant([[1.0], [2.0], [3.0], [4.0], [5.0]])
    return tf.data.Dataset.from_tensor_slices({"x": x}).batch(2)


@pytest.fixture
def trained_estimator(tmp_path: Path) -> trainer.TPUEstimator:
    """Return an estimator that has trained the slope model for one step: w = 0.5."""
    return programs.write_trained(tmp_path, steps=1)


def test_predictions_come_row_by_row_in_order_up_to_the_last_batch(
    trained_estimator: trainer.TPUEstimator,
) -> None:
    rows = [row["y"].item() for row in trained_estimator.predict(count_input_fn)]
    assert rows == [0.5, 1.0, 1.5, 2.0, 2.5]


def test_whole_batches_can_be_yielded(trained_estimator: trainer.TPUEstimator) -> None:
    batches = trained_estimator.predict(count_input_fn, yield_single_examples=False)
    assert [len(batch["y"]) for batch in batches] == [2, 2, 1]


def test_two_predictions_can_be_read_alternately(
    trained_estimator: trainer.TPUEstimator,
) -> None:
    first = trained_estimator.predict(count_input_fn)
    assert next(first)["y"].item() == 0.5
    assert len(list(trained_estimator.predict(count_input_fn))) == 5
    assert tf.executing_eagerly()
    assert len(list(first)) == 4


def test_an_unfinished_generator_can_be_closed(trained_estimator: trainer.TPUEstimator) -> None:
    predictions = trained_estimator.predict(count_input_fn)
    next(predictions)
    predictions.close()


def test_keys_select_predictions(trained_estimator: trainer.TPUEstimator) -> None:
    assert next(trained_estimator.predict(count_input_fn, predict_keys=["y"])).keys() == {"y"}
    assert next(trained_estimator.predict(count_input_fn, predict_keys=[])).keys() == {"y"}
    with pytest.raises(InvalidSetting, match=r"predict_keys \['z'\] name none of .*\['y'\]"):
        next(trained_estimator.predict(count_input_fn, predict_keys="z"))


def test_keys_that_are_no_names_are_refused(trained_estimator: trainer.TPUEstimator) -> None:
    with pytest.raises(TypeError, match=r"predict_keys is 5\. Give names"):
        next(trained_estimator.predict(count_input_fn, 5))  # type: ignore[arg-type]


def test_an_input_without_a_batch_is_warned_of(
    trained_estimator: trainer.TPUEstimator, caplog: pytest.LogCaptureFixture
) -> None:
    def input_fn() -> Any:
        return count_input_fn().unbatch().batch(6, drop_remainder=True)

    assert list(trained_estimator.predict(input_fn)) == []
    assert "input_fn gave no batch to predict" in caplog.text


def test_an_untrained_model_predicts_with_initial_values(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    predictions = programs.estimator(tmp_path).predict(count_input_fn)
    assert [row["y"].item() for row in predictions] == [0.0] * 5
    assert f"Could not find trained model in {tmp_path}" in caplog.text


def test_a_missing_checkpoint_is_an_error(trained_estimator: trainer.TPUEstimator) -> None:
    with pytest.raises(CheckpointNotFound, match="no checkpoint nowhere"):
        next(trained_estimator.predict(count_input_fn, checkpoint_path="nowhere"))


class StepAtEnd(tf.compat.v1.train.SessionRunHook):
    """Records the global step of the default graph when a session ends."""

    step = None

    def end(self, session: Any) -> None:
        """Record the global step."""
        self.step = session.run(tf.compat.v1.train.get_global_step())


def test_hooks_have_their_graph_as_the_default_graph_until_the_end(
    trained_estimator: trainer.TPUEstimator,
) -> None:
    hook = StepAtEnd()
    assert len(list(trained_estimator.predict(count_input_fn, hooks=[hook]))) == 5
    assert hook.step == 1


def test_a_hook_can_read_a_batch_when_the_session_is_created(
    trained_estimator: trainer.TPUEstimator,
) -> None:
    batches = []

    class ReadBatch(tf.compat.v1.train.SessionRunHook):
        def after_create_session(self, session: Any, coord: Any) -> None:
            (features,) = (
                op for op in session.graph.get_operations() if op.type == "IteratorGetNext"
            )
            batches.append(session.run(features.outputs[0]).tolist())

    rows = list(trained_estimator.predict(count_input_fn, hooks=[ReadBatch()]))
    trained_estimator.evaluate(programs.ones(batches=2), hooks=[ReadBatch()])
    assert batches == [[[1.0], [2.0]], [[1.0], [1.0]]]
    # The hook has read the first two of the five rows.
    assert [row["y"].item() for row in rows] == [1.5, 2.0, 2.5]
