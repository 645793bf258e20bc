"""Evaluation on an emulated TPU: every row has the same weight, whatever the batch sizes."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tpuserve
import trainer
from tests.trainer.backends.tpu import slope
from tpuserve.errors import InvalidSetting
from trainer import InputPipelineConfig
from trainer.compat.contrib.training import StopAfterNEvalsHook, get_or_create_eval_step

v1 = tf.compat.v1


def _squares(count: int) -> Any:
    """Return an input_fn with x = 1, ..., `count` and labels 0; with w = 0.5 a loss is x^2 / 8."""

    def input_fn(params: Any) -> Any:
        x = np.arange(1, count + 1, dtype=np.float32).reshape([count, 1])
        rows = tf.data.Dataset.from_tensor_slices(({"x": x}, np.zeros_like(x)))
        return rows.batch(params["batch_size"])

    return input_fn


def _metrics(mode: str, y: Any, **_: Any) -> dict[str, Any]:
    if mode != "eval":
        return {}
    return {"eval_metrics": (lambda y: {"mean": v1.metrics.mean(y)}, {"y": y})}


@pytest.fixture(scope="module")
def trained_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model_dir = tmp_path_factory.mktemp("model")
    with slope.tpu():
        slope.estimator(model_dir).train(slope.ones(), steps=1)  # w becomes 0.5.
    return model_dir


_TPU_CONFIGS: list[dict[str, Any]] = [
    {},
    {"per_host_input_for_training": InputPipelineConfig.PER_HOST_V2},
    {"per_host_input_for_training": InputPipelineConfig.BROADCAST},
    {"eval_training_input_configuration": InputPipelineConfig.SLICED},
    {"num_cores_per_replica": 2},
]


@pytest.mark.slow
@pytest.mark.parametrize("tpu_config", _TPU_CONFIGS, ids=str)
@pytest.mark.parametrize("count", [1, 8, 11])
@pytest.mark.numeric
def test_every_row_counts_once(
    tpu_config: dict[str, Any], count: int, trained_model_dir: Path
) -> None:
    with slope.tpu(4):
        result = slope.estimator(trained_model_dir, _metrics, tpu_config=tpu_config).evaluate(
            _squares(count)
        )
    x = np.arange(1, count + 1)
    assert result["mean"] == pytest.approx(np.mean(x) / 2)
    assert result["loss"] == pytest.approx(np.mean(x**2) / 8)


@pytest.mark.slow
@pytest.mark.on_pjrt_too
@pytest.mark.parametrize("input_mode", ["PER_HOST_V1", "BROADCAST"])
@pytest.mark.parametrize(
    ("batch_size", "maxima"),
    # Of the numbers 1 to 11, in batches of 4, 4 and 3, and in batches of 3, 3, 3 and 2.
    [(4, [4, 8, 11]), (3, [3, 6, 9, 11])],
)
def test_metric_fn_gets_the_batches_of_input_fn_on_every_device(
    input_mode: str, batch_size: int, maxima: list[int], trained_model_dir: Path
) -> None:
    def metric_fn(x: Any) -> Any:
        return {"maximum": v1.metrics.mean(tf.reduce_max(x)), "rows": v1.metrics.mean(tf.size(x))}

    def more(mode: str, features: Any, **_: Any) -> dict[str, Any]:
        return {"eval_metrics": (metric_fn, {"x": features["x"]})} if mode == "eval" else {}

    def input_fn(params: Any) -> Any:
        return _squares(11)({"batch_size": batch_size})

    tpu_config = {"per_host_input_for_training": getattr(InputPipelineConfig, input_mode)}
    for use_tpu in (False, True):
        with slope.tpu(2):
            estimator = slope.estimator(
                trained_model_dir, more, tpu_config=tpu_config, use_tpu=use_tpu
            )
            results = estimator.evaluate(input_fn)
        assert results["maximum"] == pytest.approx(np.mean(maxima))
        assert results["rows"] == pytest.approx(11 / len(maxima))
        assert results["loss"] == pytest.approx(np.mean(np.arange(1, 12) ** 2) / 8)


@pytest.mark.slow
@pytest.mark.on_pjrt_too
@pytest.mark.numeric
def test_more_steps_than_batches_evaluate_the_whole_input(trained_model_dir: Path) -> None:
    with slope.tpu():
        result = slope.estimator(trained_model_dir, _metrics).evaluate(_squares(6), steps=100)
    assert result["mean"] == pytest.approx(3.5 / 2)


@pytest.mark.slow
@pytest.mark.numeric
def test_hosts_evaluate_together(trained_model_dir: Path) -> None:
    tpu_config = {"per_host_input_for_training": InputPipelineConfig.PER_HOST_V2}
    with tpuserve.emulated_tpu(4, 2, compiled=False):
        result = slope.estimator(trained_model_dir, _metrics, tpu_config=tpu_config).evaluate(
            _squares(6)
        )
    # Each of the hosts reads the whole input, so every row is evaluated once per host.
    assert result["mean"] == pytest.approx(3.5 / 2)


def test_training_needs_whole_batches(tmp_path: Path) -> None:
    with slope.tpu(), pytest.raises(InvalidSetting, match="drop_remainder=True"):
        slope.estimator(tmp_path).train(_squares(6), steps=1)


def test_a_batch_size_not_divisible_by_the_replicas_is_refused(tmp_path: Path) -> None:
    with slope.tpu(3), pytest.raises(InvalidSetting, match=r"train_batch_size \(4\)"):
        slope.estimator(tmp_path).train(slope.ones(), steps=1)


class _EvalStepHook(tf.compat.v1.train.SessionRunHook):
    """Records the eval step after each session.run."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def begin(self) -> None:
        self._step = get_or_create_eval_step()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.counts.append(int(run_context.session.run(self._step)))


@pytest.mark.parametrize("use_tpu", [False, True])
def test_the_eval_step_counts_and_hooks_run_once_a_step(
    use_tpu: bool, trained_model_dir: Path
) -> None:
    hook = _EvalStepHook()
    with slope.tpu():
        slope.estimator(trained_model_dir, use_tpu=use_tpu).evaluate(
            slope.ones(), steps=3, hooks=[hook]
        )
    assert hook.counts == [1, 2, 3]


@pytest.mark.parametrize("use_tpu", [False, True])
def test_a_hook_of_tensorflow_stops_after_its_number_of_steps(
    use_tpu: bool, trained_model_dir: Path
) -> None:
    mine, stop = _EvalStepHook(), StopAfterNEvalsHook(2)
    with slope.tpu():
        slope.estimator(trained_model_dir, use_tpu=use_tpu).evaluate(
            slope.ones(9), hooks=[mine, stop]
        )
    assert mine.counts == [1, 2]


@pytest.mark.parametrize("use_tpu", [False, True])
def test_a_metric_may_have_a_tuple_of_values(use_tpu: bool, trained_model_dir: Path) -> None:
    def metric_fn(y: Any) -> Any:
        (mean, mean_update), (total, update) = v1.metrics.mean(y), v1.metrics.mean(2 * y)
        return {"pair": ((mean, total), tf.group(mean_update, update))}

    def more(mode: str, y: Any, **_: Any) -> dict[str, Any]:
        return {"eval_metrics": (metric_fn, {"y": y})} if mode == "eval" else {}

    with slope.tpu():
        results = slope.estimator(trained_model_dir, more, use_tpu=use_tpu).evaluate(slope.ones(1))
    assert results["pair"] == (0.5, 1.0)


@pytest.mark.parametrize("drops", [True, False])
def test_metric_fn_has_static_shapes_where_the_input_drops_the_remainder(
    drops: bool, trained_model_dir: Path
) -> None:
    rows: list[Any] = []

    def metric_fn(y: Any) -> Any:
        rows.append(y.shape.as_list()[0])
        return {"mean": v1.metrics.mean(y)}

    def more(mode: str, y: Any, **_: Any) -> dict[str, Any]:
        if mode != "eval":
            return {}
        call = (lambda y: rows.append(y.shape.as_list()[0]), {"y": y})
        return {"eval_metrics": (metric_fn, {"y": y}), "host_call": call}

    def input_fn(params: Any) -> Any:
        ones = np.ones([10, 1], np.float32)
        dataset = tf.data.Dataset.from_tensor_slices(({"x": ones}, ones))
        return dataset.batch(params["batch_size"], drop_remainder=drops)

    with slope.tpu():
        results = slope.estimator(trained_model_dir, more).evaluate(input_fn)
    assert rows == ([4, 4] if drops else [None, None])
    assert results["mean"] == 0.5


def _nine_batches(params: Any) -> Any:
    """Nine batches for a replica each, with the rows 0, 1, 2 and so on."""
    size = params["batch_size"]
    numbers = np.arange(9 * size, dtype=np.float32)[:, np.newaxis]
    dataset = tf.data.Dataset.from_tensor_slices(({"x": numbers}, numbers))
    return dataset.batch(size, drop_remainder=True)


def _evaluate_nine_batches(metric_fn: Any, trained_model_dir: Path, replicas: int = 2) -> Any:
    """Evaluate where each replica takes its own batches, so that the last step is not full."""

    def more(mode: str, features: Any, **_: Any) -> dict[str, Any]:
        return {"eval_metrics": (metric_fn, {"x": features["x"]})} if mode == "eval" else {}

    with slope.tpu(replicas):
        estimator = slope.estimator(
            trained_model_dir,
            more,
            tpu_config={"per_host_input_for_training": InputPipelineConfig.PER_HOST_V2},
        )
        return estimator.evaluate(_nine_batches)


def test_metric_fn_has_static_shapes_where_each_replica_takes_its_own_batches(
    trained_model_dir: Path,
) -> None:
    rows: list[Any] = []

    def metric_fn(x: Any) -> Any:
        rows.append(x.shape.as_list()[0])
        largest = v1.get_variable(
            "largest",
            [],
            initializer=v1.zeros_initializer(),
            collections=[v1.GraphKeys.LOCAL_VARIABLES],
            trainable=False,
        )
        update = largest.assign(tf.maximum(largest, tf.reduce_max(x)))
        return {"mean": v1.metrics.mean(x), "largest": (largest.read_value(), update)}

    results = _evaluate_nine_batches(metric_fn, trained_model_dir)
    # The second call is for the last step, in which one of the replicas has a batch.
    assert rows == [4, None]
    assert (results["mean"], results["largest"]) == (8.5, 17)


def test_the_log_says_where_metric_fn_gets_the_batches_of_all_replicas_together(
    trained_model_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def metric_fn(x: Any) -> Any:
        return {"rows": v1.metrics.mean(tf.size(x))}

    with caplog.at_level(logging.INFO, "tensorflow.trainer"):
        # Nine batches of 2 rows: four steps have two of them, and the last has one.
        assert _evaluate_nine_batches(metric_fn, trained_model_dir)["rows"] == pytest.approx(18 / 5)
    assert caplog.text.count("all batches of a step together: those of all replicas") == 1


def test_a_metric_fn_that_needs_static_shapes_is_told_that_the_last_step_is_not_full(
    trained_model_dir: Path,
) -> None:
    def metric_fn(x: Any) -> Any:
        return {"mean": v1.metrics.mean(tf.reshape(x, [x.shape[0] // 2, 2]))}

    with pytest.raises(InvalidSetting, match="1 of 2 replicas had a batch, and metric_fn"):
        _evaluate_nine_batches(metric_fn, trained_model_dir)
    assert _evaluate_nine_batches(metric_fn, trained_model_dir, replicas=1)["mean"] == 17.5


def _flattened_images(batches: int) -> Any:
    """Return an input_fn with images [2, 3, rows], flattened: the default of ResNet's flags.

    All pixels of row i are i, and the label is the sum of the row's pixels, 6 i.
    """

    def input_fn(params: Any) -> Any:
        size = params["batch_size"]
        numbers = np.arange(batches * size, dtype=np.float32)
        images = np.repeat(numbers, 6).reshape([-1, 2, 3])
        dataset = tf.data.Dataset.from_tensor_slices((images, 6 * numbers))
        dataset = dataset.batch(size, drop_remainder=True)
        return dataset.map(
            lambda rows, labels: (tf.reshape(tf.transpose(rows, [1, 2, 0]), [-1]), labels)
        )

    return input_fn


def _flattened_model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
    images = tf.transpose(tf.reshape(features, [2, 3, params["batch_size"]]), [2, 0, 1])
    w = v1.get_variable("w", [], initializer=v1.ones_initializer())
    difference = w * tf.reduce_sum(images, [1, 2]) - labels

    def metric_fn(difference: Any, labels: Any) -> Any:
        distance = v1.metrics.mean(tf.abs(difference))
        return {"distance": distance, "label": v1.metrics.mean(labels)}

    optimizer = trainer.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.0))
    loss = tf.reduce_mean(tf.square(difference))
    step = v1.train.get_global_step()
    return trainer.TPUEstimatorSpec(
        mode,
        loss=loss,
        train_op=optimizer.minimize(loss, step) if mode == trainer.ModeKeys.TRAIN else None,
        eval_metrics=(metric_fn, [difference, labels]),
    )


@pytest.mark.slow
@pytest.mark.parametrize("use_tpu", [True, False])
def test_a_flattened_batch_is_trained_on_and_evaluated(use_tpu: bool, tmp_path: Path) -> None:
    # With another input mode, the host would split the flattened images of several rows.
    tpu_config = trainer.TPUConfig(2, per_host_input_for_training=InputPipelineConfig.PER_HOST_V2)
    with slope.tpu(2):
        estimator = trainer.TPUEstimator(
            _flattened_model_fn,
            config=trainer.RunConfig(tpu_config, model_dir=str(tmp_path)),
            use_tpu=use_tpu,
            train_batch_size=4,
            eval_batch_size=4,
        )
        estimator.train(_flattened_images(4), steps=2)
        results = estimator.evaluate(_flattened_images(4), steps=2)
    # Two steps of 4 rows, numbered 0 to 7: the mean of 6 i is 21. Each row meets its own label.
    assert (results["distance"], results["label"], results["loss"]) == (0, 21, 0)
