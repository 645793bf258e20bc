from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import trainer
from tests.trainer import programs
from tpuserve.errors import CheckpointNotFound, InvalidSetting

pytestmark = pytest.mark.slow


def counted() -> Any:
    x = tf.constant([[1.0], [2.0], [3.0], [4.0], [5.0]])
    return tf.data.Dataset.from_tensor_slices({"x": x}).batch(2)


@pytest.fixture
def trained(tmp_path: Path) -> trainer.TPUEstimator:
    """w = 0.5 after one step."""
    return programs.estimator(tmp_path).train(programs.ones(), max_steps=1)


def test_predictions_come_row_by_row_in_order_the_last_batch_included(
    trained: trainer.TPUEstimator,
) -> None:
    rows = [row["y"].item() for row in trained.predict(counted)]
    assert rows == [0.5, 1.0, 1.5, 2.0, 2.5]


def test_whole_batches_can_be_had(trained: trainer.TPUEstimator) -> None:
    batches = trained.predict(counted, yield_single_examples=False)
    assert [len(batch["y"]) for batch in batches] == [2, 2, 1]


def test_predict_works_twice_and_between_two_rows_of_another(
    trained: trainer.TPUEstimator,
) -> None:
    first = trained.predict(counted)
    assert next(first)["y"].item() == 0.5
    assert len(list(trained.predict(counted))) == 5
    assert tf.executing_eagerly()
    assert len(list(first)) == 4


def test_a_generator_that_is_not_used_up_closes(trained: trainer.TPUEstimator) -> None:
    predictions = trained.predict(counted)
    next(predictions)
    predictions.close()


def test_keys_select_predictions(trained: trainer.TPUEstimator) -> None:
    assert next(trained.predict(counted, predict_keys=["y"])).keys() == {"y"}
    with pytest.raises(InvalidSetting, match=r"predict_keys \['z'\] name none of .*\['y'\]"):
        next(trained.predict(counted, predict_keys="z"))


def test_a_model_that_was_never_trained_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFound, match="Couldn't find trained model"):
        next(programs.estimator(tmp_path).predict(counted))
