from typing import Any

import pytest
import tensorflow as tf

from trainer.config.run_config import RunConfig
from trainer.execution import run_graph, train_loop
from trainer.hooks.step_trial import CompiledStepHook, StepTrial
from trainer.hooks.training_hooks import StepRangeHook

v1 = tf.compat.v1


def run_trial(xla: float, kernels: float, steps: int = 10) -> tuple[StepTrial, list[bool]]:
    """Record runs until a trial is over; return the trial, and for each run whether it used XLA.

    Args:
      xla: the duration of a run in XLA, in seconds.
      kernels: the duration of a run in TensorFlow's kernels, in seconds.
      steps: the number of steps of a run.
    """
    trial, ways = StepTrial(), []
    while not trial.is_over:
        ways.append(trial.uses_xla)
        trial.record(steps, xla if trial.uses_xla else kernels)
    return trial, ways


def test_the_faster_way_stays() -> None:
    assert run_trial(xla=0.75, kernels=1.0)[0].uses_xla
    assert not run_trial(xla=1.0, kernels=0.75)[0].uses_xla


def test_a_gain_of_less_than_three_percent_is_noise() -> None:
    assert not run_trial(xla=0.98, kernels=1.0)[0].uses_xla


def test_the_ways_alternate_after_the_run_that_compiles() -> None:
    trial, ways = run_trial(xla=0.75, kernels=1.0)
    assert ways == [True, False, True, True, False, False, True, True, False]
    assert (trial.xla_step, trial.kernels_step) == (0.075, 0.1)


def test_short_runs_are_measured_until_each_way_has_taken_half_a_second() -> None:
    trial, _ = run_trial(xla=0.05, kernels=0.1)
    assert sum(trial.in_xla) * 10 == pytest.approx(0.55)


def test_a_trial_ends_early_if_xla_takes_much_longer() -> None:
    trial, ways = run_trial(xla=1.6, kernels=1.0)
    assert ways == [True, False, True, True, False]
    assert not trial.uses_xla
    assert len(run_trial(xla=1.4, kernels=1.0)[1]) == 9


def test_the_median_is_compared_so_that_one_slow_run_decides_nothing() -> None:
    trial = StepTrial()
    slow = [9.0]
    while not trial.is_over:
        seconds = 0.8 if trial.uses_xla else 1.0
        trial.record(10, slow.pop() if trial.uses_xla and trial.in_xla and slow else seconds)
    assert trial.uses_xla


def test_runs_of_one_step_count_for_nothing_and_the_kernels_stay() -> None:
    trial, ways = run_trial(xla=0.5, kernels=1.0, steps=1)
    assert not trial.uses_xla
    assert len(ways) == 80


class Clock(tf.compat.v1.train.SessionRunHook):
    """A clock that only runs during a `session.run`, for a duration that the test determines."""

    def __init__(self, durations: list[float | None]) -> None:
        self._now, self._durations = 0.0, iter(durations)

    def __call__(self) -> float:
        return self._now

    def before_run(self, run_context: Any) -> None:
        duration = next(self._durations)
        if duration is None:
            raise tf.errors.AbortedError(None, None, "the session is lost")
        self._now += duration


def build_hook(clock: Clock) -> tuple[train_loop.TrainLoop, StepRangeHook, CompiledStepHook]:
    """Build a training loop in the default graph; return the loop and its hooks."""
    step = v1.train.get_global_step()
    loss = v1.get_variable("w", initializer=1.0) ** 2
    train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
    loop = train_loop.build_train_loop(train_op, loss, step, 2, "auto")
    start = StepRangeHook(steps=None, max_steps=None)
    return loop, start, CompiledStepHook(loop, start, is_forced=False, clock=clock)


def train(durations: list[float | None]) -> list[bool]:
    """Train without an end; return for each run whether it used XLA.

    Args:
      durations: the durations of the runs, in seconds. None loses the session; another session
        makes the next run.
    """
    clock = Clock(durations)
    with run_graph.new_run_graph(RunConfig(), has_single_replica=True):
        loop, start, hook = build_hook(clock)
        assert loop.compiled is not None
        fetches = [loop.compiled.uses_xla, loop.train_op]
        with v1.train.MonitoredSession(hooks=[start, hook, clock]) as session:
            runs = len(durations) - durations.count(None)
            return [bool(session.run(fetches, {loop.iterations: 2})[0]) for _ in range(runs)]


def test_a_trial_begins_after_5_s_without_the_first_run_of_each_session() -> None:
    ways = train([100.0, 1.0, None, 100.0, 1.0, 4.0, 1.0])
    assert ways == [False, False, False, False, False, True]


def test_a_trial_begins_again_in_a_new_session() -> None:
    assert train([100.0, 6.0, 1.0, None, 1.0, 1.0, 1.0]) == [False, False, True, False, False, True]


def test_each_run_fetches_the_same_so_that_the_graph_is_optimised_only_once() -> None:
    with run_graph.new_run_graph(RunConfig(), has_single_replica=True):
        _, _, hook = build_hook(Clock([]))
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            context = v1.train.SessionRunContext(None, session)
            fetches = hook.before_run(context).fetches
            hook.after_run(context, v1.train.SessionRunValues(session.run(fetches), None, None))
            assert hook.before_run(context).fetches == fetches
