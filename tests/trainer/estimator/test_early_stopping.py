from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import trainer
from tests.trainer import programs
from tpuserve.errors import InvalidSetting, InvalidType
from trainer.estimator import early_stopping
from trainer.estimator.early_stopping import (
    FollowChiefHook,
    StopOnPredicateHook,
    make_early_stopping_hook,
)
from trainer.hooks import event_files

v1 = tf.compat.v1


@pytest.fixture
def estimator(tmp_path: Path) -> trainer.TPUEstimator:
    return programs.estimator(tmp_path, iterations_per_loop=2)


class Calls:
    """A should_stop_fn that counts its calls and always returns False."""

    count = 0

    def __call__(self) -> bool:
        self.count += 1
        return False


def last_step(estimator: trainer.TPUEstimator, hook: Any) -> int:
    estimator.train(programs.ones(), hooks=[hook], max_steps=20)
    return int(programs.variable(Path(estimator.model_dir), "global_step"))


def write_scalars(
    estimator: trainer.TPUEstimator, values: dict[int, float], name: str = "eval"
) -> str:
    directory = f"{estimator.model_dir}/{name}"
    for step, value in values.items():
        event_files.write_scalars(directory, {"auc": value}, step)
    return directory


def test_training_stops_after_the_loop_in_which_the_function_says_so(
    estimator: trainer.TPUEstimator,
) -> None:
    answers = iter([False, False, True])
    hook = make_early_stopping_hook(estimator, lambda: next(answers), None, run_every_steps=1)
    assert last_step(estimator, hook) == 6


def test_the_function_is_called_every_so_many_steps(estimator: trainer.TPUEstimator) -> None:
    calls = Calls()
    hook = make_early_stopping_hook(estimator, calls, None, run_every_steps=6)
    assert last_step(estimator, hook) == 20
    # The calls come after 2, 8, 14 and 20 steps.
    assert calls.count == 4


def test_the_function_is_called_every_so_many_seconds(estimator: trainer.TPUEstimator) -> None:
    times = iter(range(0, 1000, 20))
    calls = Calls()
    hook = StopOnPredicateHook(calls, 60, None, clock=lambda: next(times))
    assert last_step(estimator, hook) == 20
    # Ten loops at 0, 20, ... 180 seconds: calls at 0, 60, 120 and 180.
    assert calls.count == 4


def test_zero_seconds_call_the_function_after_every_loop(
    estimator: trainer.TPUEstimator,
) -> None:
    calls = Calls()
    hook = make_early_stopping_hook(estimator, calls, run_every_secs=0)
    assert last_step(estimator, hook) == 20
    # Ten loops of two steps.
    assert calls.count == 10


def test_early_stopping_leaves_nothing_in_the_checkpoint(
    estimator: trainer.TPUEstimator,
) -> None:
    hook = StopOnPredicateHook(lambda: True, None, 1, has_workers=True)
    assert last_step(estimator, hook) == 2
    checkpoint = estimator.latest_checkpoint()
    assert {name for name, _ in tf.train.list_variables(checkpoint)} == {"w", "global_step"}


def test_a_worker_stops_when_the_chief_does() -> None:
    server = v1.train.Server.create_local_server()
    steps: dict[str, int] = {"chief": 0, "worker": 0}

    def session(name: str, hook: Any, creator: Callable[..., Any]) -> Any:
        with tf.Graph().as_default():
            step = v1.train.create_global_step()
            train_op = v1.assign_add(step, 1, use_locking=True)
            monitored = v1.train.MonitoredSession(creator(master=server.target), hooks=[hook])

        def run() -> None:
            monitored.run(train_op)
            steps[name] += 1

        return monitored, run

    answers = iter([False, True])
    chief, train_chief = session(
        "chief",
        StopOnPredicateHook(lambda: next(answers), None, 1, has_workers=True),
        v1.train.ChiefSessionCreator,
    )
    worker, train_worker = session("worker", FollowChiefHook(), v1.train.WorkerSessionCreator)
    train_chief()
    train_worker()
    assert not chief.should_stop()
    assert not worker.should_stop()
    train_chief()
    train_worker()
    assert chief.should_stop()
    assert worker.should_stop()
    chief.close()
    worker.close()


STEPS = {10: 0.5, 20: 0.7, 30: 0.6, 40: 0.65}


@pytest.mark.parametrize(
    ("make", "argument", "options", "stops"),
    [
        (early_stopping.stop_if_higher_hook, 0.69, {}, True),
        (early_stopping.stop_if_higher_hook, 0.71, {}, False),
        (early_stopping.stop_if_higher_hook, 0.69, {"min_steps": 25}, False),
        (early_stopping.stop_if_lower_hook, 0.51, {}, True),
        (early_stopping.stop_if_lower_hook, 0.5, {}, False),
        (early_stopping.stop_if_lower_hook, 0.51, {"min_steps": 11}, False),
        (early_stopping.stop_if_no_increase_hook, 20, {}, True),
        (early_stopping.stop_if_no_increase_hook, 21, {}, False),
        (early_stopping.stop_if_no_increase_hook, 20, {"min_steps": 30}, False),
        (early_stopping.stop_if_no_decrease_hook, 30, {}, True),
        (early_stopping.stop_if_no_decrease_hook, 31, {}, False),
        (early_stopping.stop_if_no_decrease_hook, 10, {"min_steps": 30}, True),
    ],
)
def test_metrics_decide(
    make: Any, argument: float, options: Any, stops: bool, estimator: trainer.TPUEstimator
) -> None:
    write_scalars(estimator, STEPS)
    hook = make(estimator, "auc", argument, run_every_secs=None, run_every_steps=1, **options)
    assert hook._should_stop_fn() is stops


def test_another_evaluation_can_decide(estimator: trainer.TPUEstimator) -> None:
    directory = write_scalars(estimator, STEPS, name="eval_other")
    hook = early_stopping.stop_if_higher_hook(
        estimator, "auc", 0.6, eval_dir=directory, run_every_secs=None, run_every_steps=1
    )
    assert last_step(estimator, hook) == 2


def test_without_an_evaluation_training_goes_on(estimator: trainer.TPUEstimator) -> None:
    hook = early_stopping.stop_if_no_increase_hook(estimator, "auc", 1)
    assert last_step(estimator, hook) == 20


def test_a_metric_that_no_evaluation_has_is_an_error(estimator: trainer.TPUEstimator) -> None:
    write_scalars(estimator, STEPS)
    hook = early_stopping.stop_if_higher_hook(estimator, "acu", 1)
    with pytest.raises(InvalidSetting, match="no metric 'acu' in .*eval; found auc"):
        last_step(estimator, hook)


def test_results_are_read_by_step(estimator: trainer.TPUEstimator) -> None:
    directory = write_scalars(estimator, {20: 0.5, 10: 0.25})
    metrics = early_stopping.read_eval_metrics(directory)
    assert list(metrics.items()) == [(10, {"auc": 0.25}), (20, {"auc": 0.5})]


def test_what_cannot_work_is_refused(estimator: trainer.TPUEstimator) -> None:
    with pytest.raises(InvalidType, match="estimator must have type"):
        make_early_stopping_hook(object(), lambda: True)
    with pytest.raises(InvalidType, match="should_stop_fn is 1"):
        make_early_stopping_hook(estimator, 1)  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="run_every_secs is 60 and run_every_steps 5"):
        make_early_stopping_hook(estimator, lambda: True, run_every_steps=5)
    with pytest.raises(InvalidSetting, match="run_every_steps is 0"):
        make_early_stopping_hook(estimator, lambda: True, None, run_every_steps=0)
