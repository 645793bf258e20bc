import dataclasses
import logging
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import tpuserve
import trainer
from tests.trainer import programs
from tpuserve.errors import CheckpointMismatch, InvalidSetting, StepNotCounted, TpuNotFound
from trainer.hooks import training_hooks

v1 = tf.compat.v1


def state(model_dir: Path) -> tuple[float, int]:
    w, step = (programs.variable(model_dir, name) for name in ("w", "global_step"))
    return float(w), int(step)


def test_training_moves_the_model_as_worked_out_by_hand(tmp_path: Path) -> None:
    programs.estimator(tmp_path).train(programs.ones(), max_steps=4)
    assert state(tmp_path) == (1 - 0.5**4, 4)


@pytest.mark.parametrize("iterations_per_loop", [1, 3, 7, 100])
def test_training_ends_at_the_exact_step_for_every_loop_length(
    tmp_path: Path, iterations_per_loop: int
) -> None:
    estimator = programs.estimator(tmp_path, iterations_per_loop=iterations_per_loop)
    estimator.train(programs.ones(), max_steps=10)
    assert state(tmp_path) == (1 - 0.5**10, 10)


def test_timed_loops_end_at_the_exact_step(tmp_path: Path) -> None:
    config = trainer.RunConfig(trainer.TPUConfig("1s"), model_dir=str(tmp_path))
    trainer.TPUEstimator(
        programs.slope_model_fn, config=config, params={"rate": 0.5}, use_tpu=False
    ).train(programs.ones(), max_steps=10)
    assert state(tmp_path) == (1 - 0.5**10, 10)


def test_a_host_of_a_tpu_trains_on_its_cpu_alone_and_leaves_checkpoints_to_host_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPU_WORKER_HOSTNAMES", "host-0,host-1")
    for index in ("1", "0"):
        monkeypatch.setenv("TPU_WORKER_ID", index)
        programs.estimator(tmp_path).train(programs.ones(), max_steps=4)
        assert (tf.train.latest_checkpoint(str(tmp_path)) is not None) == (index == "0")


def test_training_continues_from_the_newest_checkpoint(tmp_path: Path) -> None:
    programs.estimator(tmp_path).train(programs.ones(), max_steps=3)
    programs.estimator(tmp_path).train(programs.ones(), steps=2)
    assert state(tmp_path) == (1 - 0.5**5, 5)


@pytest.mark.parametrize("stop", [{"last_step": 10}, {"num_steps": 7}])
def test_a_stop_hook_stops_at_its_exact_step(tmp_path: Path, stop: dict[str, int]) -> None:
    estimator = programs.estimator(tmp_path, iterations_per_loop=4)
    estimator.train(programs.ones(), steps=3)
    estimator.train(programs.ones(), hooks=[v1.train.StopAtStepHook(**stop)], max_steps=100)
    assert state(tmp_path) == (1 - 0.5**10, 10)


@pytest.mark.parametrize("field", ["training_hooks", "training_chief_hooks"])
def test_a_stop_hook_of_the_model_stops_at_its_exact_step(tmp_path: Path, field: str) -> None:
    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        spec = programs.slope_model_fn(features, labels, mode, params)
        spec = spec.as_estimator_spec()
        return dataclasses.replace(spec, **{field: [v1.train.StopAtStepHook(num_steps=6)]})

    programs.estimator(tmp_path, model_fn=model_fn).train(programs.ones())
    assert state(tmp_path) == (1 - 0.5**6, 6)


def test_the_log_names_the_device_and_the_batch_size(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tensorflow.trainer")
    estimator = programs.estimator(tmp_path, train_batch_size=16)
    estimator.train(programs.ones(), max_steps=1).evaluate(programs.ones(), steps=1)
    assert [message for message in caplog.messages if " on " in message] == [
        "train on CPU: batch 16",
        "evaluate on CPU",
    ]


def test_nothing_is_done_when_max_steps_is_reached(tmp_path: Path) -> None:
    estimator = programs.estimator(tmp_path)
    estimator.train(programs.ones(), max_steps=3)
    newest = estimator.latest_checkpoint()
    estimator.train(programs.ones(), max_steps=3)
    assert estimator.latest_checkpoint() == newest


def test_training_ends_with_its_input_and_keeps_every_step(tmp_path: Path) -> None:
    programs.estimator(tmp_path, iterations_per_loop=4).train(programs.ones(batches=6))
    assert state(tmp_path) == (1 - 0.5**6, 6)


def test_the_checkpoint_holds_the_model_and_the_global_step_and_nothing_else(
    tmp_path: Path,
) -> None:
    programs.estimator(tmp_path).train(programs.ones(), max_steps=1)
    names = {name for name, _ in tf.train.list_variables(str(tmp_path))}
    assert names == {"w", "global_step"}


def test_checkpoints_are_written_between_loops(tmp_path: Path) -> None:
    estimator = programs.estimator(tmp_path, iterations_per_loop=4, save_checkpoints_steps=4)
    estimator.train(programs.ones(), max_steps=12)
    assert sorted(tmp_path.glob("*.index")) == [
        tmp_path / f"model.ckpt-{step}.index" for step in (0, 12, 4, 8)
    ]


@pytest.mark.numeric
def test_summaries_of_model_fn_and_loop_reach_tensorboard(tmp_path: Path) -> None:
    estimator = programs.estimator(tmp_path, iterations_per_loop=4, save_summary_steps=4)
    estimator.train(programs.ones(), max_steps=8)
    written = programs.scalars(tmp_path)
    assert {"loss", "slope"} <= written.keys()
    # This is the loss of the eighth step, which started with w = 1 - 0.5 ** 7.
    assert written["loss"][8] == pytest.approx(0.5**14 / 2)


def test_the_speed_is_a_summary_every_log_step_count_steps(tmp_path: Path) -> None:
    estimator = programs.estimator(tmp_path, iterations_per_loop=1, log_step_count_steps=3)
    estimator.train(programs.ones(), max_steps=8)
    # The first loop, which includes the start, is not measured.
    assert list(programs.scalars(tmp_path)["global_step/sec"]) == [4, 7]


def test_each_training_marks_its_start_for_tensorboard(tmp_path: Path) -> None:
    for _ in range(2):
        programs.estimator(tmp_path, iterations_per_loop=1).train(programs.ones(), steps=5)
    starts = [
        event.step
        for path in sorted(tmp_path.glob("events.out.tfevents.*"))
        for event in v1.train.summary_iterator(str(path))
        if event.session_log.status == v1.SessionLog.START
    ]
    assert starts == [1, 6]


def test_a_hook_can_fetch_a_tensor_of_the_model_by_name(tmp_path: Path) -> None:
    losses: list[float] = []

    class Fetch(tf.compat.v1.train.SessionRunHook):
        def before_run(self, run_context: Any) -> Any:
            return v1.train.SessionRunArgs("squared_error:0")

        def after_run(self, run_context: Any, run_values: Any) -> None:
            losses.append(float(run_values.results))

    programs.estimator(tmp_path).train(programs.ones(), hooks=[Fetch()], max_steps=8)
    assert losses == [0.5**6, 0.5**14]


def test_log_lines_say_loss_step_speed_and_time_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tensorflow.trainer")
    estimator = programs.estimator(tmp_path, iterations_per_loop=5, log_step_count_steps=10)
    estimator.train(programs.ones(), max_steps=25)
    lines = [message for message in caplog.messages if message.startswith("loss = ")]
    steps = [f"step = {n} of 25" for n in (10, 20, 25)]
    assert [line.partition(", ")[2][: len(steps[0])] for line in lines] == steps
    assert ["s left" in line for line in lines] == [True, True, False]
    assert all("steps/s)" in line for line in lines)


def test_a_nan_loss_stops_training(tmp_path: Path) -> None:
    estimator = programs.estimator(tmp_path, rate=float("nan"))
    with pytest.raises(v1.train.NanLossDuringTrainingError):
        estimator.train(programs.ones(), max_steps=8)


def test_users_hooks_see_the_step_of_a_nan_loss_which_is_not_saved(tmp_path: Path) -> None:
    losses: list[float] = []

    class Dump(tf.compat.v1.train.SessionRunHook):
        def before_run(self, run_context: Any) -> Any:
            return v1.train.SessionRunArgs("squared_error:0")

        def after_run(self, run_context: Any, run_values: Any) -> None:
            losses.append(run_values.results)

    # The first step computes the loss 1 of w = 0, and makes w NaN.
    estimator = programs.estimator(
        tmp_path, rate=float("nan"), iterations_per_loop=1, save_checkpoints_steps=1
    )
    with pytest.raises(v1.train.NanLossDuringTrainingError):
        estimator.train(programs.ones(), hooks=[Dump()], max_steps=8)
    assert len(losses) == 2
    assert str(estimator.latest_checkpoint()).endswith("model.ckpt-1")


def test_tensors_can_be_the_input_as_well_as_a_dataset(tmp_path: Path) -> None:
    def input_fn() -> Any:
        return {"x": tf.ones([2, 1])}, tf.ones([2, 1])

    programs.estimator(tmp_path).train(input_fn, max_steps=4)
    assert state(tmp_path) == (1 - 0.5**4, 4)


@pytest.mark.slow
@pytest.mark.numeric
def test_an_adam_optimizer_with_a_batch_norm_trains_in_the_loop(tmp_path: Path) -> None:
    from trainer import CrossShardOptimizer, TPUEstimatorSpec

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        normal = v1.layers.batch_normalization(features["x"], training=True, momentum=0.5)
        loss = tf.reduce_mean((v1.layers.dense(normal, 1) - labels) ** 2)
        with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
            optimizer = CrossShardOptimizer(v1.train.AdamOptimizer())
            train_op = optimizer.minimize(loss, global_step=v1.train.get_global_step())
        return TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    programs.estimator(tmp_path, model_fn=model_fn).train(programs.ones(), max_steps=6)
    # The moving mean starts at 0 and moves half the way to the batch's mean, 1, in each of 6 steps.
    moving_mean = programs.variable(tmp_path, "batch_normalization/moving_mean")
    assert moving_mean.tolist() == pytest.approx([1 - 0.5**6])


def test_impossible_numbers_of_steps_are_refused(tmp_path: Path) -> None:
    estimator = programs.estimator(tmp_path)
    with pytest.raises(InvalidSetting, match="steps is 1 and max_steps 2"):
        estimator.train(programs.ones(), steps=1, max_steps=2)
    with pytest.raises(InvalidSetting, match="max_steps is 0"):
        estimator.train(programs.ones(), max_steps=0)


def test_a_missing_tpu_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    estimator = programs.estimator(tmp_path, use_tpu=True, train_batch_size=8)
    for method in (estimator.train, estimator.evaluate, estimator.predict):
        with pytest.raises(TpuNotFound, match="no TPU found, and .* Pass use_tpu=False"):
            method(programs.ones())


def test_a_host_call_runs_in_every_step_of_a_loop_and_writes_its_summaries(
    tmp_path: Path,
) -> None:
    def host_call(step: Any) -> Any:
        writer = tf.summary.create_file_writer(str(tmp_path / "host"))
        with writer.as_default(), tf.summary.record_if(True):
            tf.summary.write("seen", tf.cast(step, tf.float32), step=step)
        return v1.summary.all_v2_summary_ops()

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        spec = programs.slope_model_fn(features, labels, mode, params)
        with tf.control_dependencies([spec.train_op]):
            step = tf.identity(v1.train.get_global_step())
        return dataclasses.replace(spec, host_call=(host_call, [step]))

    estimator = programs.estimator(tmp_path, model_fn=model_fn, iterations_per_loop=5)
    estimator.train(programs.ones(), max_steps=15)
    (path,) = (tmp_path / "host").glob("events.out.tfevents.*")
    steps = [event.step for event in v1.train.summary_iterator(str(path)) if event.summary.value]
    assert steps == list(range(1, 16))


@pytest.mark.slow
def test_the_same_seed_gives_the_same_layers_and_another_gives_others(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        loss = tf.reduce_mean(v1.layers.dense(features["x"], 3))
        step = v1.train.get_global_step().assign_add(1)
        return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=step)

    def kernel(name: str, seed: int) -> list[list[float]]:
        config = trainer.RunConfig(model_dir=str(tmp_path / name), tf_random_seed=seed)
        estimator = trainer.TPUEstimator(model_fn, config=config, use_tpu=False)
        estimator.train(programs.ones(), max_steps=1)
        return list(programs.variable(tmp_path / name, "dense/kernel").tolist())

    assert kernel("a", 1) == kernel("b", 1) != kernel("c", 2)


def test_a_model_with_a_loss_summary_of_its_own_keeps_the_name(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        spec = programs.slope_model_fn(features, labels, mode, params)
        v1.summary.scalar("loss", spec.loss * 2.0)
        return spec

    programs.estimator(tmp_path, model_fn=model_fn).train(programs.ones(), max_steps=4)
    written = programs.scalars(tmp_path)
    assert "loss_1" not in written
    assert written["loss"][4] == 0.5**6


def test_saving_listeners_without_checkpoints_are_refused(tmp_path: Path) -> None:
    estimator = programs.estimator(tmp_path, save_checkpoints_steps=None)
    listener = tf.compat.v1.train.CheckpointSaverListener()
    with pytest.raises(InvalidSetting, match="saving_listeners need checkpoints"):
        estimator.train(programs.ones(), max_steps=1, saving_listeners=[listener])


@pytest.mark.slow
def test_a_saver_hook_of_the_user_loses_the_saving_listeners_after_training(tmp_path: Path) -> None:
    class Listener(tf.compat.v1.train.CheckpointSaverListener):
        def __init__(self) -> None:
            self.steps: list[int] = []

        def after_save(self, session: Any, global_step_value: int) -> None:
            self.steps.append(int(global_step_value))

    estimator = programs.estimator(tmp_path, iterations_per_loop=1)
    own, added = Listener(), Listener()
    hook = v1.train.CheckpointSaverHook(str(tmp_path), save_steps=2, listeners=[own])
    for max_steps in (2, 4):
        estimator.train(programs.ones(), [hook], max_steps=max_steps, saving_listeners=[added])
    # Each training saves its first step too.
    assert added.steps == [0, 2, 2, 4]
    estimator.train(programs.ones(), [hook], max_steps=6)
    assert added.steps == [0, 2, 2, 4]
    assert own.steps == [0, 2, 2, 4, 4, 6]


def test_model_fn_sees_the_model_directory_in_its_config(tmp_path: Path) -> None:
    config = trainer.RunConfig()
    estimator = trainer.TPUEstimator(programs.slope_model_fn, str(tmp_path), config, use_tpu=False)
    assert estimator.config.model_dir == estimator.model_dir == str(tmp_path)


def test_a_train_op_that_counts_no_steps_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        w = v1.get_variable("w", initializer=0.0)
        return trainer.TPUEstimatorSpec(mode, loss=w * 1.0, train_op=w.assign_add(1.0))

    estimator = programs.estimator(tmp_path, model_fn=model_fn, iterations_per_loop=2)

    class StopAtThird(tf.compat.v1.train.SessionRunHook):
        runs = 0

        def after_run(self, run_context: Any, run_values: Any) -> None:
            self.runs += 1
            if self.runs == 3:
                run_context.request_stop()

    estimator.train(programs.ones(), hooks=[StopAtThird()], max_steps=10)
    messages = [message for message in caplog.messages if "has not moved" in message]
    assert len(messages) == 1
    assert "Let train_op count it" in messages[0]


def uncounted_model_fn(features: Any, labels: Any, mode: str) -> Any:
    """A model_fn whose minimize() lacks the argument global_step."""
    loss = tf.reduce_mean(tf.square(v1.get_variable("w", initializer=1.0) * features["x"]))
    train_op = v1.train.GradientDescentOptimizer(0.5).minimize(loss)
    return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


@pytest.mark.slow
@pytest.mark.parametrize("use_tpu", [False, True])
def test_training_with_a_forgotten_global_step_ends_with_an_error(
    use_tpu: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_hooks, "_UNMOVED_STEPS", 100)
    with tpuserve.emulated_tpu(1):
        estimator = programs.estimator(
            tmp_path,
            model_fn=uncounted_model_fn,
            iterations_per_loop=40,
            use_tpu=use_tpu,
            train_batch_size=2,
        )
        # Three loops of 40 steps.
        with pytest.raises(StepNotCounted, match="step 1000, .* still 0 after 120 steps in 3 "):
            estimator.train(lambda params: programs.ones()(), max_steps=1000)


def test_the_global_step_may_count_one_of_many_steps(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        steps = v1.get_variable("steps", initializer=tf.constant(0), trainable=False)
        is_counted = tf.equal(steps.assign_add(1, read_value=True) % 200, 0)
        count = v1.train.get_global_step().assign_add(tf.cast(is_counted, tf.int64))
        return trainer.TPUEstimatorSpec(mode, loss=tf.constant(1.0), train_op=count)

    estimator = programs.estimator(tmp_path, model_fn=model_fn)
    estimator.train(programs.ones(), max_steps=1)
    assert programs.variable(tmp_path, "steps") == 200


def test_training_to_the_end_of_the_input_needs_no_global_step(tmp_path: Path) -> None:
    estimator = programs.estimator(tmp_path, model_fn=uncounted_model_fn, iterations_per_loop=50)
    # Four loops of 50 steps; the input ends after them.
    assert estimator.train(programs.ones(200)) is estimator


def test_a_checkpoint_of_another_shape_is_refused_by_every_method(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        v1.get_variable("b", [params["size"]])
        return programs.slope_model_fn(features, labels, mode, params)

    def estimator(size: int) -> trainer.TPUEstimator:
        params = {"rate": 0.5, "size": size}
        return programs.estimator(tmp_path / "model", model_fn=model_fn, params=params)

    def receiver_fn() -> trainer.ServingInputReceiver:
        x = v1.placeholder(tf.float32, [None, 1])
        return trainer.ServingInputReceiver({"x": x}, {"x": x})

    estimator(1).train(programs.ones(), max_steps=1)
    other = estimator(3)
    for use in (
        lambda: other.train(programs.ones(), max_steps=2),
        lambda: other.evaluate(programs.ones(), steps=1),
        lambda: next(other.predict(programs.ones())),
        lambda: other.export_saved_model(str(tmp_path / "export"), receiver_fn),
    ):
        with pytest.raises(
            CheckpointMismatch, match=r"'b' has shape \[3\] .* and \[1\] in"
        ) as refused:
            use()
        # Programs catch the error that tf.estimator raises.
        assert isinstance(refused.value, tf.errors.InvalidArgumentError)


def test_a_checkpoint_that_lacks_a_variable_is_refused_in_a_sentence(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        v1.get_variable("b", [])
        return programs.slope_model_fn(features, labels, mode, params)

    path = programs.write_trained(tmp_path, 1).latest_checkpoint()
    other = programs.estimator(tmp_path, model_fn=model_fn)
    for use in (
        lambda: other.train(programs.ones(), max_steps=2),
        lambda: other.evaluate(programs.ones(), steps=1),
        lambda: next(other.predict(programs.ones())),
    ):
        with pytest.raises(CheckpointMismatch) as refused:
            use()
        assert str(refused.value) == (
            f"checkpoint {path} lacks variables of the model: b. Use the model and the optimizer "
            f"that wrote it, or another model_dir."
        )
        # Programs catch the error that tf.estimator raises.
        assert isinstance(refused.value, tf.errors.NotFoundError)


@pytest.mark.numeric
def test_scripts_find_in_the_log_what_tf_estimator_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tensorflow")
    estimator = programs.estimator(tmp_path, train_batch_size=2, log_step_count_steps=4)
    estimator.train(programs.ones(), max_steps=4)
    # The fourth step computed its loss with w = 1 - 0.5 ** 3.
    assert "Loss for final step: 0.0078125." in caplog.messages
    result = dict(message.split(": ") for message in caplog.messages if "/sec: " in message)
    assert float(result["examples/sec"]) == pytest.approx(
        2 * float(result["global_step/sec"]), rel=1e-4
    )


class Newest(tf.compat.v1.train.SessionRunHook):
    """Records the path of the newest checkpoint after each session.run, and at the end."""

    def __init__(self, model_dir: Path) -> None:
        self._model_dir = model_dir
        self.checkpoint_names: list[str] = []

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Notes it."""
        self.end(run_context.session)

    def end(self, session: Any) -> None:
        """Notes it."""
        self.checkpoint_names.append(Path(tf.train.latest_checkpoint(str(self._model_dir))).name)


def test_a_hook_finds_the_checkpoint_of_the_step_it_is_called_for(tmp_path: Path) -> None:
    hook = Newest(tmp_path)
    estimator = programs.estimator(tmp_path, iterations_per_loop=2, save_checkpoints_steps=2)
    estimator.train(programs.ones(), hooks=[hook], max_steps=4)
    assert hook.checkpoint_names == ["model.ckpt-2", "model.ckpt-4", "model.ckpt-4"]
