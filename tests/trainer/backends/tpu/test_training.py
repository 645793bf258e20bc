"""Training on an emulated TPU: the steps it makes, its hooks, and the files that it writes."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tpuserve
import trainer
from tests.trainer.backends.tpu import slope
from tests.trainer.programs import scalars, variable
from trainer import ModeKeys

v1 = tf.compat.v1


@pytest.mark.slow
@pytest.mark.on_pjrt_too
@pytest.mark.parametrize("iterations", [1, 3, 100, "1s"])
@pytest.mark.numeric
def test_step_counts_are_exact_for_every_loop_length(iterations: int | str, tmp_path: Path) -> None:
    with slope.tpu():
        model = slope.estimator(tmp_path, tpu_config={"iterations_per_loop": iterations})
        model.train(slope.ones(), steps=5)
        assert variable(tmp_path, "global_step") == 5
        model.train(slope.ones(), max_steps=7)
        model.train(slope.ones(), max_steps=6)
    assert variable(tmp_path, "global_step") == 7
    assert variable(tmp_path, "w") == pytest.approx(1 - 0.5**7)


@pytest.mark.slow
@pytest.mark.on_pjrt_too
def test_an_evaluation_returns_scalars_of_the_types_of_its_metrics(tmp_path: Path) -> None:
    with slope.tpu():
        model = slope.estimator(tmp_path).train(slope.ones(), steps=1)
        results = model.evaluate(slope.ones(1))
    types = {name: type(value) for name, value in results.items()}
    assert types.pop("global_step") is np.int64
    assert set(types.values()) == {np.float32}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.numeric
def test_training_that_ends_with_its_input_keeps_every_step(compiled: bool, tmp_path: Path) -> None:
    with slope.tpu(compiled=compiled):
        slope.estimator(tmp_path).train(slope.ones(6))
    assert variable(tmp_path, "global_step") == 6
    assert variable(tmp_path, "w") == pytest.approx(1 - 0.5**6)


@pytest.mark.slow
@pytest.mark.numeric
def test_cores_beyond_the_first_of_a_replica_stay_idle(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with slope.tpu(4), caplog.at_level(logging.INFO, "tensorflow.trainer"):
        model = slope.estimator(tmp_path, tpu_config={"num_cores_per_replica": 2})
        model.train(slope.ones(), steps=2)
        assert model.evaluate(slope.ones(1))["loss"] == pytest.approx(0.5**4 / 2)
        assert len(list(model.predict(slope.ones(1)))) == 4
    assert variable(tmp_path, "w") == pytest.approx(0.75)
    assert "the first of its 2 emulated cores; the others stay idle" in caplog.text


@pytest.mark.numeric
def test_input_partition_dims_do_not_change_the_training(tmp_path: Path) -> None:
    def input_fn(params: Any) -> Any:
        batch = tf.ones([params["batch_size"], 2])
        return tf.data.Dataset.from_tensors(({"x": batch}, batch)).repeat()

    with slope.tpu(4):
        settings = {
            "num_cores_per_replica": 2,
            "per_host_input_for_training": trainer.InputPipelineConfig.PER_HOST_V2,
            "input_partition_dims": [{"x": [1, 2]}, None],
        }
        slope.estimator(tmp_path, tpu_config=settings).train(input_fn, steps=2)
    assert variable(tmp_path, "w") == pytest.approx(0.75)


@pytest.mark.on_pjrt_too
def test_batch_axis_names_the_axis_of_the_rows(tmp_path: Path) -> None:
    rows: list[Any] = []

    def build(features: Any, labels: Any, mode: str) -> Any:
        assert features["x"].shape == [3, 2]
        w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        take = lambda x: tf.numpy_function(lambda array: rows.append(array), [x], [])  # noqa: E731
        return trainer.TPUEstimatorSpec(
            mode,
            loss=w * 0.0,
            train_op=v1.train.get_global_step().assign_add(1),
            host_call=(take, [tf.transpose(features["x"])]),
        )

    def input_fn(params: Any) -> Any:
        x = np.arange(12, dtype=np.float32).reshape([3, 4])
        return tf.data.Dataset.from_tensors(({"x": x}, np.zeros(4, np.float32))).repeat()

    with slope.tpu():
        config = trainer.RunConfig(model_dir=str(tmp_path))
        trainer.TPUEstimator(build, config=config, train_batch_size=4, batch_axis=[1, 0]).train(
            input_fn, steps=1
        )
    assert rows[0].tolist() == [[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7, 11]]


class _CountingHook(tf.compat.v1.train.SessionRunHook):
    def __init__(self) -> None:
        self.begins, self.runs, self.ends = 0, 0, 0

    def begin(self) -> None:
        self.begins += 1

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.runs += 1

    def end(self, session: Any) -> None:
        self.ends += 1


@pytest.mark.slow
@pytest.mark.on_pjrt_too
def test_hooks_of_every_kind_are_called(tmp_path: Path) -> None:
    mine = {name: _CountingHook() for name in ("train", "eval", "predict")}
    models = {
        ModeKeys.TRAIN: _CountingHook(),
        ModeKeys.EVAL: _CountingHook(),
        ModeKeys.PREDICT: _CountingHook(),
    }
    names = {
        ModeKeys.TRAIN: "training_hooks",
        ModeKeys.EVAL: "evaluation_hooks",
        ModeKeys.PREDICT: "prediction_hooks",
    }
    with slope.tpu():
        model = slope.estimator(tmp_path, lambda mode, **_: {names[mode]: [models[mode]]})
        model.train(slope.ones(), steps=8, hooks=[mine["train"]])
        model.evaluate(slope.ones(3), hooks=[mine["eval"]])
        list(model.predict(slope.ones(3), hooks=[mine["predict"]]))
    for hook in (*mine.values(), *models.values()):
        assert (hook.begins, hook.ends) == (1, 1)
        assert hook.runs >= 1
    assert mine["train"].runs == models[ModeKeys.TRAIN].runs == 2


class _OnHost(tf.compat.v1.train.SessionRunHook):
    """Adds ops on the CPU to the graph, as the documentation of SessionRunHook shows."""

    def __init__(self) -> None:
        self.loop_results: list[Any] = []

    def begin(self) -> None:
        with tf.device("/device:CPU:0"):
            self._twice = 2 * tf.cast(v1.train.get_global_step(), tf.float32)
            self._word = tf.strings.as_string(self._twice, precision=0)

    def before_run(self, run_context: Any) -> Any:
        return v1.train.SessionRunArgs(self._word)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.loop_results.append(run_values.results)


@pytest.mark.slow
@pytest.mark.parametrize(("use_tpu", "compiled"), [(True, True), (True, False), (False, False)])
def test_a_hook_adds_cpu_ops_in_begin(use_tpu: bool, compiled: bool, tmp_path: Path) -> None:
    hook = _OnHost()
    with slope.tpu(compiled=compiled):
        model = slope.estimator(tmp_path, use_tpu=use_tpu)
        model.train(slope.ones(), steps=4, hooks=[hook])
        model.evaluate(slope.ones(1), hooks=[hook])
        list(model.predict(slope.ones(1), hooks=[hook]))
    assert hook.loop_results[-1] == b"8"


def _logging(tensors: Any, lines: list[Any]) -> Any:
    """Return a LoggingTensorHook that appends its values to `lines` instead of logging them."""

    def note(values: Any) -> str:
        lines.append({name: float(value) for name, value in values.items()})
        return ""

    return v1.train.LoggingTensorHook(tensors, every_n_iter=1, formatter=note)


# The losses of the last steps of two loops of 4 steps.
_LOGGED = [slope.losses(8)[step] for step in (3, 7)]


@pytest.mark.slow
@pytest.mark.on_pjrt_too
@pytest.mark.numeric
def test_the_models_hooks_log_by_tensor_and_by_name(tmp_path: Path) -> None:
    by_tensor: list[Any] = []
    by_name: list[Any] = []

    def more(mode: str, loss: Any, **_: Any) -> dict[str, Any]:
        double = tf.multiply(loss, 2.0, name="double")
        return {
            "training_hooks": [
                _logging({"loss": loss, "double": double}, by_tensor),
                _logging(["squared_error", "double:0"], by_name),
            ]
        }

    with slope.tpu():
        slope.estimator(tmp_path, more).train(slope.ones(), steps=8)
    for lines, loss, double in ((by_tensor, "loss", "double"),
                                (by_name, "squared_error", "double:0")):  # fmt: skip
        assert [line[loss] for line in lines] == pytest.approx(_LOGGED)
        assert [line[double] for line in lines] == pytest.approx([2 * loss for loss in _LOGGED])


@pytest.mark.numeric
def test_a_hook_of_train_logs_tensors_of_the_model_by_name(tmp_path: Path) -> None:
    lines: list[Any] = []

    def more(mode: str, loss: Any, **_: Any) -> dict[str, Any]:
        tf.multiply(loss, 2.0, name="double")
        return {}

    with slope.tpu():
        hook = _logging(["squared_error", "double"], lines)
        estimator = slope.estimator(tmp_path, more)
        for _ in range(2):
            estimator.train(slope.ones(), steps=4, hooks=[hook])
    assert [line["squared_error"] for line in lines] == pytest.approx(_LOGGED)
    assert [line["double"] for line in lines] == pytest.approx([2 * loss for loss in _LOGGED])


@pytest.mark.slow
@pytest.mark.on_pjrt_too
def test_a_nan_loss_ends_training(tmp_path: Path) -> None:
    def more(mode: str, loss: Any, w: Any, **_: Any) -> dict[str, Any]:
        hook = v1.train.NanTensorHook(loss)
        return {"loss": tf.math.log(loss - 10.0), "training_hooks": [hook]}

    with slope.tpu(), pytest.raises(v1.train.NanLossDuringTrainingError):
        slope.estimator(tmp_path, more).train(slope.ones(), steps=8)


@pytest.mark.on_pjrt_too
def test_a_nan_variable_is_named_with_what_to_do(tmp_path: Path) -> None:
    def more(mode: str, loss: Any, w: Any, **_: Any) -> dict[str, Any]:
        with tf.control_dependencies([w.assign(np.nan)]):
            return {"train_op": v1.train.get_global_step().assign_add(1)}

    error = v1.train.NanLossDuringTrainingError
    with slope.tpu(cores=1), pytest.raises(error, match="Gradient for w is NaN.*Lower the"):
        slope.estimator(tmp_path, more).train(slope.ones(), steps=8)


@pytest.mark.slow
@pytest.mark.on_pjrt_too
@pytest.mark.numeric
def test_summaries_of_the_model_reach_tensorboard(tmp_path: Path) -> None:
    def more(mode: str, loss: Any, w: Any, y: Any, **_: Any) -> dict[str, Any]:
        v1.summary.scalar("slope", w)
        v1.summary.histogram("y", y)
        return {}

    with slope.tpu():
        model = slope.estimator(tmp_path, more, config={"save_summary_steps": 4})
        model.train(slope.ones(), steps=8)
    result = scalars(tmp_path)
    assert result["loss"] == pytest.approx({4: slope.losses(8)[3], 8: slope.losses(8)[7]})
    assert result["slope"].keys() == {4, 8}
    histograms = [
        value.histo.num
        for path in tmp_path.glob("events.out.tfevents.*")
        for event in v1.train.summary_iterator(str(path))
        for value in event.summary.value
        if value.tag == "y"
    ]
    assert len(histograms) == 2


@pytest.mark.numeric
def test_training_accepts_an_estimator_spec(tmp_path: Path) -> None:
    with slope.tpu():
        model = slope.estimator(tmp_path, kind=trainer.EstimatorSpec)
        model.train(slope.ones(), steps=2)
        with pytest.raises(TypeError, match="TPUEstimatorSpec"):
            model.evaluate(slope.ones(1))
    assert variable(tmp_path, "w") == pytest.approx(0.75)


@pytest.mark.numeric
def test_evaluation_off_the_tpu_takes_an_estimator_spec(tmp_path: Path) -> None:
    with slope.tpu():
        model = slope.estimator(tmp_path, kind=trainer.EstimatorSpec, eval_on_tpu=False)
        model.train(slope.ones(), steps=2)
        assert model.evaluate(slope.ones(1))["loss"] == pytest.approx(0.5**4 / 2)


@pytest.mark.slow
@pytest.mark.parametrize("has_scaffold", [True, False])
def test_only_a_scaffold_of_model_fn_is_warned_of(
    has_scaffold: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def more(**_: Any) -> dict[str, Any]:
        scaffold = v1.train.Scaffold(init_fn=lambda _, session: None)
        return {"scaffold": scaffold} if has_scaffold else {}

    with slope.tpu():
        estimator = slope.estimator(tmp_path, more, kind=trainer.EstimatorSpec)
        estimator.train(slope.ones(), steps=1)
    assert ("scaffold of an EstimatorSpec is ignored" in caplog.text) is has_scaffold


@pytest.mark.slow
@pytest.mark.on_pjrt_too
@pytest.mark.numeric
def test_a_scaffold_fn_is_called_on_the_host(tmp_path: Path) -> None:
    def more(mode: str, w: Any, **_: Any) -> dict[str, Any]:
        def scaffold_fn() -> Any:
            assert not isinstance(v1.get_default_graph(), tf.__internal__.FuncGraph), (
                "inside of the computation"
            )
            return v1.train.Scaffold(init_fn=lambda _, session: w.load(0.5, session))

        return {"scaffold_fn": scaffold_fn}

    with slope.tpu():
        slope.estimator(tmp_path, more).train(slope.ones(), steps=1)
    assert variable(tmp_path, "w") == pytest.approx(0.75)


@pytest.mark.slow
@pytest.mark.on_pjrt_too
@pytest.mark.numeric
def test_training_applies_a_warm_start(tmp_path: Path) -> None:
    with slope.tpu():
        slope.estimator(tmp_path / "first").train(slope.ones(), steps=2)
        model = slope.estimator(tmp_path / "second", warm_start_from=str(tmp_path / "first"))
        model.train(slope.ones(), steps=1)
    assert variable(tmp_path / "second", "w") == pytest.approx(1 - 0.5**3)
    assert variable(tmp_path / "second", "global_step") == 1


@pytest.mark.slow
@pytest.mark.on_pjrt_too
def test_replicas_sum_in_groups(tmp_path: Path) -> None:
    calls: list[Any] = []

    def more(mode: str, features: Any, **_: Any) -> dict[str, Any]:
        x = tf.reduce_sum(features["x"])
        pairs = trainer.cross_replica_sum(x, group_assignment=[[0, 1], [2, 3]])
        whole = v1.tpu.cross_replica_sum(x)
        take = lambda a, b: tf.numpy_function(  # noqa: E731
            lambda *arrays: calls.append([one.tolist() for one in arrays]), [a, b], []
        )
        return {"host_call": (take, [tf.reshape(pairs, [1]), tf.reshape(whole, [1])])}

    def input_fn(params: Any) -> Any:
        x = np.array([[1.0], [2.0], [3.0], [4.0]], np.float32)
        return tf.data.Dataset.from_tensors(({"x": x}, x)).repeat()

    with slope.tpu(4):
        slope.estimator(tmp_path, more).train(input_fn, steps=1)
    assert calls == [[[3, 3, 7, 7], [10, 10, 10, 10]]]


@pytest.fixture(scope="module")
def trained_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model_dir = tmp_path_factory.mktemp("model")
    with slope.tpu():
        slope.estimator(model_dir).train(slope.ones(), steps=1)
    return model_dir


@pytest.mark.parametrize(
    ("dtype", "cast"), [(tf.float64, "tf.cast(x, tf.float32)"), (tf.string, "Remove strings")]
)
@pytest.mark.parametrize("mode", ["train", "evaluate", "predict"])
def test_dtypes_that_no_tpu_supports_are_refused_by_name(
    dtype: Any, cast: str, mode: str, trained_model_dir: Path
) -> None:
    def input_fn(params: Any) -> Any:
        size = params["batch_size"]
        ids = tf.fill([size, 1], "a") if dtype == tf.string else tf.zeros([size, 1], dtype)
        features = {"x": tf.ones([size, 1]), "ids": ids}
        return tf.data.Dataset.from_tensors((features, tf.ones([size, 1])))

    with tpuserve.emulated_tpu(2, compiled=False):
        model = slope.estimator(trained_model_dir)
        run = {
            "train": lambda: model.train(input_fn, steps=1),
            "evaluate": lambda: model.evaluate(input_fn),
            "predict": lambda: list(model.predict(input_fn)),
        }[mode]
        with pytest.raises(TypeError) as refused:
            run()
    assert "features['ids']" in str(refused.value)
    assert dtype.name in str(refused.value)
    assert cast in str(refused.value)


@pytest.mark.slow
@pytest.mark.on_pjrt_too
def test_a_model_that_enlarges_pictures_by_nearest_neighbors_trains(tmp_path: Path) -> None:
    def build(features: Any, labels: Any, mode: str) -> Any:
        w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        pixels = tf.reshape(features["x"] * w, [-1, 1, 1, 1])
        enlarged = v1.image.resize_nearest_neighbor(pixels, [2, 2])
        loss = tf.reduce_mean((enlarged - 1.0) ** 2) / 2.0
        optimizer = trainer.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.5))
        step = v1.train.get_global_step()
        return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss, step))

    with slope.tpu(2):
        config = trainer.RunConfig(trainer.TPUConfig(2), model_dir=str(tmp_path))
        model = trainer.TPUEstimator(build, config=config, train_batch_size=4)
        model.train(slope.ones(), max_steps=4)
    assert variable(tmp_path, "w") == 1 - 0.5**4
