import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import trainer
from tests.preloaded.process import run_preloaded
from tests.trainer import programs
from tpuserve.errors import UncompilableStep
from trainer.execution import run_graph
from trainer.hooks import step_trial
from trainer.modes import train as mode

v1 = tf.compat.v1


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    """Build a network of two layers with dropout between them."""
    hidden = tf.nn.dropout(v1.layers.dense(features, 8, tf.tanh, name="hidden"), rate=0.5)
    predicted = v1.layers.dense(hidden, 1, name="out")
    loss = tf.identity(tf.reduce_mean((predicted - labels) ** 2), name="error")
    v1.summary.scalar("largest", tf.reduce_max(tf.abs(predicted)))
    train_op = v1.train.MomentumOptimizer(0.01, 0.5).minimize(loss, v1.train.get_global_step())
    return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn(params: dict[str, Any]) -> Any:
    x = np.random.default_rng(1).random((64, 4), np.float32)
    rows = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True)))
    return rows.repeat().batch(params["batch_size"], drop_remainder=True)


class Recorder(tf.compat.v1.train.SessionRunHook):
    """Records the loss of each loop's last step, which it fetches by name."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def before_run(self, run_context: Any) -> Any:
        return v1.train.SessionRunArgs("error:0")

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.values.append(float(run_values.results))


@pytest.fixture
def may_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let "auto" try XLA although a seed is set, and begin the trial after the second loop."""
    monkeypatch.setattr(run_graph, "must_repeat_numbers", lambda: False)
    monkeypatch.setattr(step_trial, "_MIN_SECONDS", 0.0)
    monkeypatch.setattr(step_trial, "_TRANSLATIONS", 0)
    monkeypatch.setattr(step_trial, "_MIN_MEASURED", 0.0)
    monkeypatch.setattr(mode, "MIN_TRIAL_RUNS", 1)


def train(model_dir: Path, compile_step: bool | str, steps: int) -> list[float]:
    """Train in loops of 5 steps; return the loss of each loop's last step."""
    config = trainer.RunConfig(
        trainer.TPUConfig(iterations_per_loop=5),
        tf_random_seed=7,
        save_summary_steps=5,
        compile_step=compile_step,
    )
    recorder = Recorder()
    estimator = trainer.TPUEstimator(
        model_fn, str(model_dir), config, use_tpu=False, train_batch_size=8
    )
    estimator.train(input_fn, [recorder], max_steps=steps)
    return recorder.values


@pytest.mark.slow
@pytest.mark.numeric
@pytest.mark.parametrize("compile_step", [True, "auto"])
def test_hooks_summaries_and_checkpoints_are_the_same_in_xla(
    tmp_path: Path,
    compile_step: bool | str,
    may_differ: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "tensorflow.trainer")
    expected = train(tmp_path / "kernels", False, 60)
    assert "XLA" not in caplog.text
    fetched = train(tmp_path / "xla", compile_step, 60)
    if compile_step is True:
        assert "XLA compiles the training step" in caplog.messages
    else:
        line = (
            r"a training step takes [\d.e-]+ ms in XLA and [\d.e-]+ ms in TensorFlow's kernels: "
            r"(XLA stays|the kernels stay) \(compiled in \d+\.\d s\)"
        )
        assert sum(bool(re.fullmatch(line, message)) for message in caplog.messages) == 1
    # The losses are sums of 8 terms near 1 that are rounded to 6e-8 of their value. 60 steps of
    # gradient descent on a smooth function do not enlarge the difference beyond 1e-4.
    assert fetched == pytest.approx(expected, rel=1e-4)
    assert len(fetched) == 12
    summaries = programs.scalars(tmp_path / "xla")
    for tag, values in programs.scalars(tmp_path / "kernels").items():
        if tag in ("loss", "largest"):
            assert summaries[tag] == pytest.approx(values, rel=1e-4)
    for name, _ in tf.train.list_variables(str(tmp_path / "kernels")):
        np.testing.assert_allclose(
            programs.variable(tmp_path / "xla", name),
            programs.variable(tmp_path / "kernels", name),
            rtol=1e-3,
            atol=1e-4,
        )


@pytest.mark.slow
def test_a_short_run_does_not_try_xla(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(run_graph, "must_repeat_numbers", lambda: False)
    caplog.set_level(logging.INFO, "tensorflow.trainer")
    # 250 steps are 50 runs of the session, enough for a trial, but end within the 5 s before it.
    train(tmp_path, "auto", 250)
    assert "XLA" not in caplog.text


@pytest.mark.parametrize("seed_of", ["config", "model_fn", "program"])
def test_a_run_with_a_seed_does_not_try_xla(
    seed_of: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(step_trial, "_MIN_SECONDS", 0.0)
    monkeypatch.setattr(mode, "MIN_TRIAL_RUNS", 1)
    caplog.set_level(logging.INFO, "tensorflow.trainer")

    def seeded_model_fn(features: Any, labels: Any, mode: str) -> Any:
        if seed_of == "model_fn":
            v1.set_random_seed(7)
        return model_fn(features, labels, mode)

    config = trainer.RunConfig(
        trainer.TPUConfig(iterations_per_loop=5), tf_random_seed=7 if seed_of == "config" else None
    )
    with tf.Graph().as_default():
        if seed_of == "program":
            v1.set_random_seed(7)
        trainer.TPUEstimator(
            seeded_model_fn, str(tmp_path), config, use_tpu=False, train_batch_size=8
        ).train(input_fn, max_steps=40)
    assert "XLA" not in caplog.text


@pytest.mark.parametrize(
    "ask", ["tf.random.set_seed(1)", "tf.config.experimental.enable_op_determinism()", ""]
)
def test_what_a_program_asks_of_the_whole_process_counts(ask: str) -> None:
    program = f"""
import tensorflow as tf
from trainer.execution.run_graph import must_repeat_numbers
{ask}
print(must_repeat_numbers())
"""
    assert run_preloaded(["-c", program]).stdout.strip() == str(bool(ask))


def untranslatable_model_fn(features: Any, labels: Any, mode: str) -> Any:
    """Build the loss w * mean(0, 1), where a Range op, whose limit is not constant, makes 0, 1."""
    w = v1.get_variable("w", initializer=0.9)
    terms = tf.range(tf.cast(tf.reduce_min(features), tf.int32) + 2)
    loss = w * tf.reduce_mean(tf.cast(terms, tf.float32))
    train_op = v1.train.GradientDescentOptimizer(0.01).minimize(loss, v1.train.get_global_step())
    return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


@pytest.mark.numeric
def test_a_step_that_xla_refuses_trains_in_the_kernels_with_one_line_in_the_log(
    tmp_path: Path, may_differ: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tensorflow.trainer")
    config = trainer.RunConfig(trainer.TPUConfig(iterations_per_loop=5))
    trainer.TPUEstimator(
        untranslatable_model_fn, str(tmp_path), config, use_tpu=False, train_batch_size=8
    ).train(input_fn, max_steps=40)
    # The gradient of w is 0.5 and the rate is 0.01: after 40 steps w is 0.9 - 0.2.
    assert programs.variable(tmp_path, "w") == pytest.approx(0.7, rel=1e-5)
    refused = [
        message
        for message in caplog.messages
        if "XLA does not compile the training step" in message
    ]
    assert len(refused) == 1
    assert "must be a constant" in refused[0]
    assert "test_compile_step.py" in refused[0]


def enormous_model_fn(features: Any, labels: Any, mode: str) -> Any:
    """The loss w / 2, through a convolution of 2^23 channels that do not depend on each other.

    XLA computes the gradient of the filter for all pairs of channels, for which no machine has the
    memory; TensorFlow's kernel needs a number for each channel.
    """
    w = v1.get_variable("w", [1, 1, 2**23, 1], initializer=v1.constant_initializer(0.9))
    images = tf.fill([1, 1, 1, 2**23], 1.0 + 0.0 * tf.reduce_min(features))
    loss = tf.reduce_sum(tf.nn.depthwise_conv2d(images, w, [1, 1, 1, 1], "SAME")) / 2.0
    train_op = v1.train.GradientDescentOptimizer(0.01).minimize(loss, v1.train.get_global_step())
    return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


@pytest.mark.slow
@pytest.mark.numeric
def test_a_step_in_which_xla_fails_trains_in_the_kernels_with_one_line_in_the_log(
    tmp_path: Path, may_differ: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tensorflow.trainer")
    config = trainer.RunConfig(trainer.TPUConfig(iterations_per_loop=5))
    trainer.TPUEstimator(
        enormous_model_fn, str(tmp_path), config, use_tpu=False, train_batch_size=8
    ).train(input_fn, max_steps=20)
    # The gradient of each element of w is 0.5, the rate 0.01: after 20 steps w is 0.9 - 0.1.
    np.testing.assert_allclose(programs.variable(tmp_path, "w"), 0.8, rtol=1e-5)
    assert programs.variable(tmp_path, "global_step") == 20
    (line,) = [message for message in caplog.messages if "XLA" in message]
    assert line.startswith("XLA fails in a training step: Out of memory")
    assert line.endswith("TensorFlow's kernels, with the next batch.")


def test_compile_step_true_refuses_such_a_step_before_it_runs(tmp_path: Path) -> None:
    config = trainer.RunConfig(trainer.TPUConfig(iterations_per_loop=5), compile_step=True)
    estimator = trainer.TPUEstimator(
        untranslatable_model_fn, str(tmp_path), config, use_tpu=False, train_batch_size=8
    )
    with pytest.raises(UncompilableStep, match="must be a constant") as caught:
        estimator.train(input_fn, max_steps=40)
    assert "leave compile_step out" in str(caught.value)


def test_compile_step_true_is_refused_where_the_step_does_not_run_on_this_cpu(
    tmp_path: Path,
) -> None:
    config = trainer.RunConfig(
        trainer.TPUConfig(iterations_per_loop=5), compile_step=True, device_fn=lambda op: "/cpu:0"
    )
    estimator = trainer.TPUEstimator(
        model_fn, str(tmp_path), config, use_tpu=False, train_batch_size=8
    )
    with pytest.raises(UncompilableStep, match="a device_fn places the ops"):
        estimator.train(input_fn, max_steps=5)
