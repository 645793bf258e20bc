import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import trainer
from tests.trainer import programs
from tpuserve.errors import CheckpointNotFound, InvalidSetting

v1 = tf.compat.v1


@pytest.fixture
def trained_estimator(tmp_path: Path) -> trainer.TPUEstimator:
    """Return an estimator that has trained the slope model for two steps: w = 0.75."""
    return programs.write_trained(tmp_path, steps=2)


def trained_with(model_dir: Path, metric_fn: Callable[..., Any]) -> trainer.TPUEstimator:
    """Train the slope model for one step, with metrics that metric_fn computes from the labels."""

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        spec = programs.slope_model_fn(features, labels, mode, params)
        if mode != trainer.ModeKeys.EVAL:
            return spec
        return dataclasses.replace(spec, eval_metrics=(metric_fn, [labels]))

    estimator = programs.estimator(model_dir, model_fn=model_fn)
    return estimator.train(programs.ones(), max_steps=1)


def test_metrics_loss_and_global_step_are_those_of_the_checkpoint(
    trained_estimator: trainer.TPUEstimator,
) -> None:
    results = trained_estimator.evaluate(programs.ones(), steps=3)
    assert results == {"mean_y": 0.75, "loss": 0.25**2 / 2, "global_step": 2}


def test_results_are_numpy_scalars_that_are_shown_as_numbers(
    trained_estimator: trainer.TPUEstimator, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tensorflow")
    results = trained_estimator.evaluate(programs.ones(), steps=3)
    assert {name: type(value) for name, value in results.items()} == {
        "global_step": np.int64,
        "loss": np.float32,
        "mean_y": np.float32,
    }
    assert results["loss"].item() == 0.03125
    assert str(results) == "{'mean_y': 0.75, 'loss': 0.03125, 'global_step': 2}"
    assert "global_step = 2, loss = 0.03125, mean_y = 0.75" in caplog.text
    assert "np." not in caplog.text


def test_evaluation_ends_with_its_input(trained_estimator: trainer.TPUEstimator) -> None:
    assert trained_estimator.evaluate(programs.ones(batches=5))["mean_y"] == 0.75


@pytest.mark.numeric
def test_a_metric_weights_a_partial_batch_by_its_rows(
    trained_estimator: trainer.TPUEstimator,
) -> None:
    def input_fn() -> Any:
        x = tf.constant([[1.0], [1.0], [4.0]])
        return tf.data.Dataset.from_tensor_slices(({"x": x}, x)).batch(2)

    assert trained_estimator.evaluate(input_fn)["mean_y"] == pytest.approx(0.75 * 6 / 3)


@pytest.mark.parametrize(
    ("sizes", "loss"),
    # The losses of the two batches are 1 and 5, and the first has 2 rows.
    [((2, 6), (1 * 2 + 5 * 6) / 8), ((3, 6), (1 + 5) / 2), ((2, 9), (1 + 5) / 2)],
)
@pytest.mark.numeric
def test_the_loss_weights_batches_by_rows_only_where_all_tensors_agree_on_the_rows(
    sizes: tuple[int, int], loss: float, tmp_path: Path
) -> None:
    def input_fn() -> Any:
        def batches() -> Any:
            for x, rows, size in ((1.0, 2, sizes[0]), (5.0, 6, sizes[1])):
                yield {"edges": [0] * size, "x": [x] * rows, "scale": 1.0}, [x] * rows

        shapes = {"edges": [None], "x": [None], "scale": []}, [None]
        types = {"edges": tf.int32, "x": tf.float32, "scale": tf.float32}, tf.float32
        return tf.data.Dataset.from_generator(batches, types, shapes)

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        return trainer.EstimatorSpec(mode, loss=tf.reduce_mean(features["x"]))

    result = trainer.Estimator(model_fn, str(tmp_path)).evaluate(input_fn)
    assert result["loss"] == pytest.approx(loss)


def test_an_older_checkpoint_can_be_evaluated(trained_estimator: trainer.TPUEstimator) -> None:
    older = f"{trained_estimator.model_dir}/model.ckpt-0"
    assert (
        trained_estimator.evaluate(programs.ones(), steps=1, checkpoint_path=older)["mean_y"] == 0.0
    )


def test_an_empty_checkpoint_path_means_the_newest(trained_estimator: trainer.TPUEstimator) -> None:
    results = trained_estimator.evaluate(programs.ones(), steps=1, checkpoint_path="")
    assert results["global_step"] == 2
    assert next(trained_estimator.predict(programs.ones(1), checkpoint_path=""))["y"] == 0.75


def test_results_reach_tensorboard_under_the_evaluations_name(
    trained_estimator: trainer.TPUEstimator,
) -> None:
    trained_estimator.evaluate(programs.ones(), steps=1, name="test")
    written = programs.scalars(Path(trained_estimator.model_dir) / "eval_test")
    assert written.pop("checkpoint_path").keys() == {2}
    assert written == {"mean_y": {2: 0.75}, "loss": {2: 0.25**2 / 2}}


def test_a_metric_named_loss_is_refused(tmp_path: Path) -> None:
    estimator = trained_with(tmp_path, lambda y: {"loss": v1.metrics.mean(y)})
    with pytest.raises(InvalidSetting, match="a metric named 'loss'"):
        estimator.evaluate(programs.ones(), steps=1)


def test_an_untrained_model_is_evaluated_with_initial_values(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    results = programs.estimator(tmp_path).evaluate(programs.ones(), steps=1)
    assert results == {"mean_y": 0.0, "loss": 0.5, "global_step": 0}
    assert f"Could not find trained model in {tmp_path}" in caplog.text


def test_a_missing_checkpoint_is_an_error(trained_estimator: trainer.TPUEstimator) -> None:
    with pytest.raises(CheckpointNotFound, match="no checkpoint nowhere"):
        trained_estimator.evaluate(programs.ones(), steps=1, checkpoint_path="nowhere")


@pytest.mark.numeric
def test_the_loss_weights_a_partial_batch_by_its_rows(
    trained_estimator: trainer.TPUEstimator,
) -> None:
    def input_fn() -> Any:
        x = tf.constant([[1.0], [1.0], [4.0]])
        return tf.data.Dataset.from_tensor_slices(({"x": x}, x)).batch(2)

    # The error of each row is x / 4, so the loss is the mean over three rows of (1 + 1 + 16) / 16 /
    # 2.
    assert trained_estimator.evaluate(input_fn)["loss"] == pytest.approx(18 / 16 / 2 / 3)


def test_a_metric_can_be_a_keras_metric(tmp_path: Path) -> None:
    def metric_fn(labels: Any) -> Any:
        import tf_keras

        metric = tf_keras.metrics.Mean()
        metric.update_state(labels * 3.0)
        return {"keras": metric}

    results = trained_with(tmp_path, metric_fn).evaluate(programs.ones(), steps=2)
    assert results["keras"] == 3.0


def test_a_serialized_summary_is_written_with_its_values_numbered(tmp_path: Path) -> None:
    def metric_fn(labels: Any) -> Any:
        summary = v1.summary.scalar("inner", labels[0, 0] * 7.0)
        return {"made": (summary, tf.no_op())}

    trained_with(tmp_path, metric_fn).evaluate(programs.ones(), steps=1)
    assert programs.scalars(tmp_path / "eval")["made/0"] == {1: 7.0}


def test_a_metric_can_be_a_vector(tmp_path: Path) -> None:
    estimator = trained_with(tmp_path, lambda y: {"both": v1.metrics.mean_tensor(y)})
    results = estimator.evaluate(programs.ones(), steps=1)
    assert results["both"].tolist() == [[1.0], [1.0]]
    assert programs.scalars(tmp_path / "eval").keys() == {"loss", "both", "checkpoint_path"}


def test_a_metric_can_be_a_nested_tuple_which_is_no_summary(tmp_path: Path) -> None:
    def metric_fn(labels: Any) -> Any:
        (a, update_a), (b, update_b) = v1.metrics.mean(labels), v1.metrics.mean(labels * 3.0)
        return {"nest": (((a, b), b), tf.group(update_a, update_b))}

    results = trained_with(tmp_path, metric_fn).evaluate(programs.ones(), steps=2)
    assert results["nest"] == ((1.0, 3.0), 3.0)
    assert "nest" not in programs.scalars(tmp_path / "eval")


def test_a_warm_start_gives_the_values_that_are_evaluated_and_predicted_with(
    trained_estimator: trainer.TPUEstimator, tmp_path: Path
) -> None:
    other = programs.estimator(tmp_path / "other", warm_start_from=trained_estimator.model_dir)
    assert other.evaluate(programs.ones(), steps=1)["mean_y"] == 0.75
    assert next(other.predict(programs.ones(1)))["y"] == 0.75


def test_scripts_find_the_results_in_the_log_as_tf_estimator_wrote_them(
    trained_estimator: trainer.TPUEstimator, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tensorflow")
    trained_estimator.evaluate(programs.ones(), steps=1)
    line = "Saving dict for global step 2: global_step = 2, loss = 0.03125, mean_y = 0.75"
    assert line in caplog.messages
