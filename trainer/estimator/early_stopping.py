"""Hooks that stop training when evaluation says so.

They read what evaluate() writes for TensorBoard, so they follow an evaluation in the same process
(train_and_evaluate), in another one, or one made by hand.
"""

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting, InvalidType
from trainer.config import validation
from trainer.estimator import estimator_type
from trainer.hooks import event_files

logger = logging.getLogger("tensorflow.trainer")

# Of a collection of its own: the variable is no part of the model, nor of its checkpoints.
_SIGNALS = "early_stopping_signals"


def make_early_stopping_hook(
    estimator: Any,
    should_stop_fn: Callable[[], bool],
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Any:
    """A hook that stops training once `should_stop_fn` returns true.

    The chief calls the function; other workers follow the chief.

    Args:
      estimator: what is trained.
      should_stop_fn: takes nothing.
      run_every_secs, run_every_steps: the least distance between two calls, in seconds or in
        steps; one of them, the other being None. The first call comes after the first loop.

    Raises:
      InvalidType: it is no estimator, or no function.
      InvalidSetting: not exactly one distance is given, or it is not positive.
    """
    estimator_type.check_is_estimator(estimator)
    if not callable(should_stop_fn):
        raise InvalidType(f"should_stop_fn is {should_stop_fn!r}. Give a function of nothing.")
    if (run_every_secs is None) == (run_every_steps is None):
        raise InvalidSetting(
            f"run_every_secs is {run_every_secs} and run_every_steps {run_every_steps}. Give one "
            f"of them, and None for the other."
        )
    has_workers = estimator.config.num_worker_replicas > 1
    if not estimator.config.is_chief:
        return FollowChiefHook()
    return StopOnPredicateHook(
        should_stop_fn, run_every_secs, run_every_steps, tells_workers=has_workers
    )


def stop_if_higher_hook(
    estimator: Any,
    metric_name: str,
    threshold: float,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Any:
    """A hook that stops training once a metric is above a threshold.

    Args:
      estimator: what is trained.
      metric_name: of the evaluation, such as "loss".
      threshold: the metric may be equal to it.
      eval_dir: where the evaluation writes; None for that of an evaluation without a name.
      min_steps: results of earlier steps do not count.
      run_every_secs, run_every_steps: see `make_early_stopping_hook`.
    """

    def is_higher() -> bool:
        return _passes(
            _values(eval_dir or estimator.eval_dir(), metric_name, min_steps),
            lambda value: value > threshold,
            f"{metric_name} is above {threshold}",
        )

    return make_early_stopping_hook(estimator, is_higher, run_every_secs, run_every_steps)


def stop_if_lower_hook(
    estimator: Any,
    metric_name: str,
    threshold: float,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Any:
    """A hook that stops training once a metric is below a threshold.

    Args: as of `stop_if_higher_hook`.
    """

    def is_lower() -> bool:
        return _passes(
            _values(eval_dir or estimator.eval_dir(), metric_name, min_steps),
            lambda value: value < threshold,
            f"{metric_name} is below {threshold}",
        )

    return make_early_stopping_hook(estimator, is_lower, run_every_secs, run_every_steps)


def stop_if_no_increase_hook(
    estimator: Any,
    metric_name: str,
    max_steps_without_increase: int,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Any:
    """A hook that stops training once a metric has not risen above its best for so many steps.

    Args:
      estimator: what is trained.
      metric_name: of the evaluation, such as "accuracy".
      max_steps_without_increase: from the step of the best value.
      eval_dir: where the evaluation writes; None for that of an evaluation without a name.
      min_steps: results of earlier steps do not count.
      run_every_secs, run_every_steps: see `make_early_stopping_hook`.
    """

    def has_not_risen() -> bool:
        return _stagnates(
            _values(eval_dir or estimator.eval_dir(), metric_name, min_steps),
            lambda value, best: value > best,
            max_steps_without_increase,
            f"{metric_name} has not increased",
        )

    return make_early_stopping_hook(estimator, has_not_risen, run_every_secs, run_every_steps)


def stop_if_no_decrease_hook(
    estimator: Any,
    metric_name: str,
    max_steps_without_decrease: int,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Any:
    """A hook that stops training once a metric has not fallen below its best for so many steps.

    Args: as of `stop_if_no_increase_hook`.
    """

    def has_not_fallen() -> bool:
        return _stagnates(
            _values(eval_dir or estimator.eval_dir(), metric_name, min_steps),
            lambda value, best: value < best,
            max_steps_without_decrease,
            f"{metric_name} has not decreased",
        )

    return make_early_stopping_hook(estimator, has_not_fallen, run_every_secs, run_every_steps)


def read_eval_metrics(eval_dir: str) -> dict[int, dict[str, float]]:
    """Global step → metric → value of all evaluations that have written to a directory."""
    return event_files.read_eval_events(eval_dir)


class StopOnPredicateHook(tf.compat.v1.train.SessionRunHook):
    """Stops training when a function says so, and lets other workers know."""

    def __init__(
        self,
        should_stop_fn: Callable[[], bool],
        every_secs: float | None,
        every_steps: int | None,
        *,
        tells_workers: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Calls the function after the first loop, and then every so many seconds or steps."""
        validation.check_duration("run_every_secs", every_secs, zero=False)
        validation.check("run_every_steps", every_steps, least=1)
        self._should_stop_fn = should_stop_fn
        self._every = every_steps if every_secs is None else every_secs
        self._counts_steps = every_secs is None
        self._tells_workers = tells_workers
        self._clock = clock
        self._steps_per_run = 1
        self._next: float | None = None
        self._global_step: Any = None
        self._signal: Any = None

    def _set_steps_per_run(self, steps_per_run: int) -> None:
        self._steps_per_run = steps_per_run

    def begin(self) -> None:
        """Finds the global step; makes the signal where there are workers to see it."""
        self._next = None
        self._global_step = tf.compat.v1.train.get_global_step()
        self._signal = _signal() if self._tells_workers else None

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Takes back the signal of an earlier run."""
        if self._signal is not None:
            session.run(self._signal.initializer)

    def before_run(self, run_context: Any) -> Any:
        """Asks for the step."""
        return tf.compat.v1.train.SessionRunArgs(self._global_step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Calls the function if it is time, and stops if it says so."""
        now = self._now(run_context.session, int(run_values.results))
        if self._next is not None and now < self._next:
            return
        assert self._every is not None
        self._next = now + self._every
        if self._should_stop_fn():
            logger.info("early stopping at step %d", run_context.session.run(self._global_step))
            if self._signal is not None:
                run_context.session.run(
                    self._signal.initializer, {self._signal.initializer.inputs[1]: True}
                )
            run_context.request_stop()

    def _now(self, session: Any, fetched_step: int) -> float:
        """The seconds, or the steps that are done."""
        if not self._counts_steps:
            return self._clock()
        # The step may have been read before the run counted.
        latest = fetched_step + self._steps_per_run
        if self._next is not None and latest < self._next:
            return latest
        return float(session.run(self._global_step))


class FollowChiefHook(tf.compat.v1.train.SessionRunHook):
    """Stops training on a worker when the chief has stopped early."""

    def __init__(self) -> None:
        self._has_stopped: Any = None

    def begin(self) -> None:
        """Finds the chief's signal."""
        signal = _signal()
        # The chief may be later than this worker.
        self._has_stopped = tf.cond(signal.is_initialized(), signal.read_value, lambda: False)

    def before_run(self, run_context: Any) -> Any:
        """Asks for the signal."""
        return tf.compat.v1.train.SessionRunArgs(self._has_stopped)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Stops if the signal is there."""
        if run_values.results:
            logger.info("early stopping, as the chief does")
            run_context.request_stop()


def _signal() -> Any:
    """The variable that chief and workers share where variables are shared."""
    scope = tf.compat.v1.variable_scope("signal_early_stopping", reuse=tf.compat.v1.AUTO_REUSE)
    with scope:
        return tf.compat.v1.get_variable(
            "STOP",
            shape=[],
            dtype=tf.bool,
            initializer=tf.compat.v1.zeros_initializer(),
            collections=[_SIGNALS],
            trainable=False,
            use_resource=True,
        )


def _values(eval_dir: str, metric_name: str, min_steps: int) -> Iterable[tuple[int, float]]:
    found = read_eval_metrics(eval_dir)
    if found and not any(metric_name in metrics for metrics in found.values()):
        names = sorted({name for metrics in found.values() for name in metrics})
        raise InvalidSetting(
            f"no metric {metric_name!r} in {eval_dir}; found {', '.join(names)}. Name one of them, "
            f"or another eval_dir."
        )
    return [
        (step, metrics[metric_name])
        for step, metrics in found.items()
        if step >= min_steps and metric_name in metrics
    ]


def _passes(
    values: Iterable[tuple[int, float]], is_passed: Callable[[float], bool], what: str
) -> bool:
    for step, value in values:
        if is_passed(value):
            logger.info("%s: %g at step %d", what, value, step)
            return True
    return False


def _stagnates(
    values: Iterable[tuple[int, float]],
    is_better: Callable[[float, float], bool],
    max_steps: int,
    what: str,
) -> bool:
    best_step, best = 0, None
    for step, value in values:
        if best is None or is_better(value, best):
            best_step, best = step, value
        elif step - best_step >= max_steps:
            logger.info("%s for %d steps: best %g at step %d", what, max_steps, best, best_step)
            return True
    return False
