import pytest

from trainer.hooks.step_trial import StepTrial

pytestmark = pytest.mark.slow


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
