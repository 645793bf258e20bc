"""A run in which something fails ends soon and raises the original error, on each device."""

import gc
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import tpuserve
import trainer
from tests.trainer import programs
from tests.trainer.backends.tpu import slope
from tpuserve.errors import UnsupportedOnTpu

pytestmark = pytest.mark.first

v1 = tf.compat.v1

MODES = ("train", "evaluate", "predict")
# Limits in seconds that only catch hangs: for the end of a run after its failure, and for all that
# precedes the failure, even on a busy machine.
LIMIT_SECS, PREPARATION_SECS = 10, 240


@pytest.fixture(params=["cpu", "emulated"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the device on which `estimator` runs: "cpu", or a kind of `slope.tpu`."""
    system: AbstractContextManager[Any] = nullcontext()
    if request.param != "cpu":
        system = slope.tpu(kind=request.param)
    with system:
        yield request.param


# Training fails on each device; the other modes fail where there are most threads and queues.
ON_DEVICES_AND_IN_MODES = pytest.mark.parametrize(
    ("device", "mode"),
    [("cpu", "train"), *(("emulated", mode) for mode in MODES)],
    indirect=["device"],
)
ON_PJRT_TOO = pytest.mark.parametrize("device", ["cpu", "emulated", "pjrt"], indirect=True)


def estimator(model_dir: Path, device: str, **options: Any) -> trainer.TPUEstimator:
    sizes = dict.fromkeys(("train_batch_size", "eval_batch_size", "predict_batch_size"), 2)
    return programs.estimator(model_dir, use_tpu=device != "cpu", **{**sizes, **options})


def run_mode(
    estimator: trainer.TPUEstimator, mode: str, input_fn: Any, steps: int | None = 8
) -> Any:
    if mode == "train":
        return estimator.train(input_fn, steps=steps)
    if mode == "evaluate":
        return estimator.evaluate(input_fn, steps=steps)
    return list(estimator.predict(input_fn))


class Outcome:
    """Runs a call in a thread until it ends; a call that hangs fails the test.

    Attributes:
      error: the exception that the call raised, or None.
      threads_left: the threads that the call has started and that still run.
    """

    def __init__(self, call: Callable[[], Any], failing: "FailingFunction | None" = None) -> None:
        before = set(threading.enumerate())
        self.error: Any = None
        thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        thread.start()
        if failing is not None:
            assert failing.has_failed.wait(PREPARATION_SECS)
        thread.join(LIMIT_SECS if failing is not None else PREPARATION_SECS)
        assert not thread.is_alive(), "it hangs"
        new_threads = set(threading.enumerate()) - before
        # Leave out the threads of summary writers: TensorFlow caches a writer for each directory.
        self.threads_left = [
            thread for thread in new_threads if type(thread).__name__ != "_EventLoggerThread"
        ]

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except Exception as error:
            self.error = error


class FailingFunction:
    """A function that raises a ValueError at its n-th call and at all later calls."""

    def __init__(self, at_call: int) -> None:
        self.at_call, self.calls = at_call, 0
        self.has_failed = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, *values: Any) -> Any:
        with self._lock:
            self.calls += 1
            if self.calls >= self.at_call:
                self.has_failed.set()
                raise ValueError("out of paper")
        return values[0] if values else None

    def input_fn(self) -> Any:
        def fail(features: Any, labels: Any) -> Any:
            with tf.control_dependencies([tf.py_function(self, [0.0], tf.float32)]):
                return {"x": tf.identity(features["x"])}, labels

        dataset = programs.ones(12)().map(fail)
        return dataset


def assert_says(outcome: Outcome, text: str = "out of paper") -> None:
    assert text in str(outcome.error)
    whole = "".join(traceback.format_exception(outcome.error)).lower()
    assert not [word for word in ("cancelled", "session has been", "closed") if word in whole]
    assert outcome.threads_left == []


@pytest.mark.slow
@ON_DEVICES_AND_IN_MODES
@pytest.mark.parametrize("at_call", [1, 6, 12])
def test_a_failing_input_pipeline_raises_its_own_error(
    tmp_path: Path, device: str, mode: str, at_call: int
) -> None:
    programs.write_trained(tmp_path, steps=1)
    failing = FailingFunction(at_call)
    model = estimator(tmp_path, device, iterations_per_loop=100)
    outcome = Outcome(
        lambda: run_mode(model, mode, failing.input_fn, None if mode != "train" else 100), failing
    )
    assert_says(outcome)
    assert "in __call__" in str(outcome.error), "its own traceback"
    run_mode(model, mode, programs.ones(4), 2)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["pjrt"], indirect=True)
@pytest.mark.parametrize("mode", MODES)
def test_a_failing_input_pipeline_raises_its_own_error_on_pjrt_devices(
    tmp_path: Path, device: str, mode: str
) -> None:
    test_a_failing_input_pipeline_raises_its_own_error(tmp_path, device, mode, at_call=6)


@ON_DEVICES_AND_IN_MODES
def test_a_failing_input_fn_raises_its_own_error(tmp_path: Path, device: str, mode: str) -> None:
    programs.write_trained(tmp_path, steps=1)
    failing = FailingFunction(1)
    outcome = Outcome(
        lambda: run_mode(estimator(tmp_path, device), mode, lambda: failing()), failing
    )
    assert_says(outcome)
    assert outcome.error.__traceback__ is not None


def slope_with(
    change: Callable[[Any], Any] = lambda y: y, **more: Callable[[Any, Any], Any]
) -> Callable[..., Any]:
    """Return the model_fn of the slope model with another input and further fields of its spec.

    Args:
      change: takes features["x"] and returns the input of the model.
      more: field of the spec → function that takes features["x"] and labels, and returns its value.
    """

    def model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
        spec = programs.slope_model_fn({"x": change(features["x"])}, labels, mode, params)
        fields = {name: make(features["x"], labels) for name, make in more.items()}
        return spec._replace(**fields)

    return model_fn


@ON_DEVICES_AND_IN_MODES
def test_a_failing_model_fn_raises_its_own_error(tmp_path: Path, device: str, mode: str) -> None:
    programs.write_trained(tmp_path, steps=1)
    failing = FailingFunction(1)
    model = estimator(tmp_path, device, model_fn=slope_with(failing))
    outcome = Outcome(lambda: run_mode(model, mode, programs.ones()), failing)
    assert_says(outcome)
    assert type(outcome.error) is ValueError
    assert "in model_fn" in "".join(traceback.format_tb(outcome.error.__traceback__))


def asserting(x: Any) -> Any:
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_sum(x) < 0, ["out of paper"])]):
        return tf.identity(x)


def dividing(x: Any) -> Any:
    # Not a constant, which would be divided before the run.
    none = tf.cast(x, tf.int32) - 1
    return x + tf.cast(1 // none, tf.float32)


@pytest.mark.slow
@ON_DEVICES_AND_IN_MODES
@pytest.mark.parametrize(
    ("change", "text"), [(asserting, "out of paper"), (dividing, "division by zero")]
)
def test_an_op_that_fails_in_the_step_raises_its_own_error(
    tmp_path: Path, device: str, mode: str, change: Any, text: str
) -> None:
    programs.write_trained(tmp_path, steps=1)
    model = estimator(tmp_path, device, model_fn=slope_with(change), iterations_per_loop=100)
    steps = 100 if mode == "train" else None
    outcome = Outcome(lambda: run_mode(model, mode, programs.ones(20), steps))
    assert_says(outcome, text)
    run_mode(estimator(tmp_path, device), mode, programs.ones(4), 2)


def test_a_nan_loss_stops_training(tmp_path: Path, device: str) -> None:
    model = estimator(tmp_path, device, rate=1e30, iterations_per_loop=4)
    outcome = Outcome(lambda: model.train(programs.ones(), steps=40))
    assert_says(outcome, "NaN")


@pytest.mark.slow
@ON_PJRT_TOO
@pytest.mark.parametrize("at_call", [1, 6])
def test_a_failing_host_call_raises_its_own_error(
    tmp_path: Path, device: str, at_call: int
) -> None:
    failing = FailingFunction(at_call)

    def host_call(x: Any, labels: Any) -> Any:
        return lambda x: tf.py_function(failing, [x], tf.float32), [x]

    model_fn = slope_with(host_call=host_call)
    # Off the TPU it is called once a loop, else in each step.
    steps = 4 if device == "cpu" else 10**6
    model = estimator(tmp_path, device, model_fn=model_fn, iterations_per_loop=steps)
    outcome = Outcome(lambda: model.train(programs.ones(), steps=10**6), failing)
    assert_says(outcome)
    estimator(tmp_path, device).train(programs.ones(), steps=2)


@pytest.mark.slow
def test_a_metric_fn_that_fails_when_run_raises_its_own_error(tmp_path: Path, device: str) -> None:
    failing = FailingFunction(3)

    def metrics(x: Any, labels: Any) -> Any:
        return (
            lambda x: {"m": v1.metrics.mean(tf.py_function(failing, [x], tf.float32))},
            [x],
        )

    model = estimator(tmp_path, device, model_fn=slope_with(eval_metrics=metrics))
    assert_says(Outcome(lambda: model.evaluate(programs.ones(), steps=8), failing))
    assert estimator(tmp_path, device).evaluate(programs.ones(), steps=2)["loss"] == 0.5


def test_a_metric_fn_that_fails_when_built_raises_its_own_error(
    tmp_path: Path, device: str
) -> None:
    failing = FailingFunction(1)
    model_fn = slope_with(eval_metrics=lambda x, labels: (lambda x: {"m": failing()}, [x]))
    model = estimator(tmp_path, device, model_fn=model_fn)
    outcome = Outcome(lambda: model.evaluate(programs.ones(), steps=8), failing)
    assert_says(outcome)
    assert type(outcome.error) is ValueError


class FailingHook(tf.compat.v1.train.SessionRunHook):
    """Raises in one of its methods, at the second call."""

    def __init__(self, method: str, failing: Callable[[], Any]) -> None:
        setattr(self, method, lambda *arguments: failing())


@ON_DEVICES_AND_IN_MODES
@pytest.mark.parametrize("method", ["after_create_session", "before_run", "after_run", "end"])
def test_a_failing_hook_raises_its_own_error(
    tmp_path: Path, device: str, mode: str, method: str
) -> None:
    programs.write_trained(tmp_path, steps=1)
    failing = FailingFunction(2 if method.endswith("run") else 1)
    hooks = [FailingHook(method, failing)]
    model = estimator(tmp_path, device)
    calls = {
        "train": lambda: model.train(programs.ones(), hooks, steps=16),
        "evaluate": lambda: model.evaluate(programs.ones(), steps=16, hooks=hooks),
        "predict": lambda: list(model.predict(programs.ones(16), hooks=hooks)),
    }
    outcome = Outcome(calls[mode], failing)
    assert_says(outcome)
    assert type(outcome.error) is ValueError


class LosingOnce(tf.compat.v1.train.SessionRunHook):
    """Loses the session once, after a number of runs."""

    def __init__(self, after_runs: int) -> None:
        self._runs_left = after_runs
        self.losses = 0

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._runs_left -= 1
        if self._runs_left == 0:
            self.losses += 1
            raise tf.errors.AbortedError(None, None, "a worker was started anew")


@pytest.mark.slow
@ON_PJRT_TOO
def test_training_continues_from_the_last_checkpoint_after_a_lost_session(
    tmp_path: Path, device: str
) -> None:
    model = estimator(tmp_path, device, save_checkpoints_steps=8)
    losing = LosingOnce(3)
    outcome = Outcome(lambda: model.train(programs.ones(), [losing], max_steps=20))
    assert outcome.error is None
    assert outcome.threads_left == []
    assert losing.losses == 1
    assert programs.variable(tmp_path, "global_step") == 20
    assert programs.variable(tmp_path, "w") == 1 - 0.5**20


@pytest.mark.parametrize("device", ["emulated"], indirect=True)
@pytest.mark.parametrize("mode", ["evaluate", "predict"])
def test_evaluation_and_prediction_raise_the_error_that_lost_their_session(
    tmp_path: Path, device: str, mode: str
) -> None:
    programs.write_trained(tmp_path, steps=1)
    model = estimator(tmp_path, device)
    hooks = [LosingOnce(2)]
    outcome = Outcome(
        lambda: (
            model.evaluate(programs.ones(), steps=16, hooks=hooks)
            if mode == "evaluate"
            else list(model.predict(programs.ones(), hooks=hooks))
        )
    )
    assert isinstance(outcome.error, tf.errors.AbortedError)
    assert "a worker was started anew" in str(outcome.error)
    assert outcome.threads_left == []


def refused_by_xla(x: Any) -> Any:
    return x + tf.strings.to_number(tf.strings.as_string(x, name="spelled"))


@pytest.mark.parametrize("mode", MODES)
def test_an_op_that_xla_refuses_is_named_with_the_line_that_made_it(
    tmp_path: Path, mode: str
) -> None:
    programs.write_trained(tmp_path, steps=1)
    model_fn = slope_with(refused_by_xla)
    with tpuserve.emulated_tpu(cores=2):
        model = estimator(tmp_path, "emulated", model_fn=model_fn)
        outcome = Outcome(lambda: run_mode(model, mode, programs.ones(4), 2))
    assert isinstance(outcome.error, UnsupportedOnTpu)
    # TensorFlow's error, whose text does not name the line, is not shown before the explanation.
    assert isinstance(outcome.error.__context__, tf.errors.InvalidArgumentError)
    trace = "".join(traceback.format_exception(outcome.error))
    assert trace.count("Traceback") == 1
    text = str(outcome.error)
    assert f"AsString (spelled, created at {__file__}:" in text
    assert ': return x + tf.strings.to_number(tf.strings.as_string(x, name="spelled"))' in text
    assert "outside_compilation" in text
    assert "compile_emulated=False" in text
    assert outcome.threads_left == []


@pytest.mark.slow
@pytest.mark.parametrize("leave", ["close", "break", "raise", "collect"])
def test_a_generator_that_is_closed_early_leaves_no_thread_behind(
    tmp_path: Path, device: str, leave: str
) -> None:
    programs.write_trained(tmp_path, steps=1)
    model = estimator(tmp_path, device)

    def consume() -> None:
        rows: Any = model.predict(programs.ones())
        for row in rows:
            assert row["y"] == [0.5]
            if leave == "raise":
                raise ValueError("out of paper")
            break
        if leave == "close":
            rows.close()
        del rows
        gc.collect()

    outcome = Outcome(consume)
    assert str(outcome.error or "") == ("out of paper" if leave == "raise" else "")
    outcome.error = None
    gc.collect()
    assert not [thread for thread in outcome.threads_left if thread.is_alive()]


def test_two_generators_can_be_read_in_turns(tmp_path: Path, device: str) -> None:
    programs.write_trained(tmp_path, steps=1)
    model = estimator(tmp_path, device, train_batch_size=2, iterations_per_loop=3)
    turns = zip(model.predict(programs.ones(5)), model.predict(programs.ones(5)), strict=True)
    assert [(a["y"][0], b["y"][0]) for a, b in turns] == [(0.5, 0.5)] * 10
