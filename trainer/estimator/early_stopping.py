"""Hooks that stop training early, depending on evaluation results.

The hooks read the event files that evaluate() writes for TensorBoard.
"""

import logging
import operator
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve import validation
from tpuserve.errors import InvalidSetting, InvalidType
from trainer.estimator import plain_export
from trainer.hooks import event_files

logger = logging.getLogger("tensorflow.trainer")

# The graph collection of the stop signal, a variable by which the chief stops the other workers.
# The variable is in no other collection, so that checkpoints do not contain it.
_SIGNAL_COLLECTION = "early_stopping_signals"


def make_early_stopping_hook(
    estimator: Any,
    should_stop_fn: Callable[[], bool],
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Any:
    """Make a hook that stops training once `should_stop_fn` returns true.

    Only the chief calls the function; the other workers stop when the chief stops. Set exactly
    one of run_every_secs and run_every_steps, and pass None for the other.

    Args:
      should_stop_fn: takes no argument and returns whether to stop training.
      run_every_secs: the minimum time between two calls of the function, in seconds; 0 calls the
        function after every training loop.
      run_every_steps: the minimum number of training steps between two calls. The first call
        follows the first training loop.

    Returns:
      A SessionRunHook for `estimator.train`.

    Raises:
      InvalidType: estimator is not an estimator, or should_stop_fn cannot be called.
      InvalidSetting: both or neither of the intervals are set, or an interval is out of range.
    """
    plain_export.check_is_estimator(estimator)
    if not callable(should_stop_fn):
        raise InvalidType(
            f"should_stop_fn is {should_stop_fn!r}. Give a function without arguments."
        )
    if (run_every_secs is None) == (run_every_steps is None):
        raise InvalidSetting(
            f"run_every_secs is {run_every_secs} and run_every_steps {run_every_steps}. Give one "
            f"of them, and None for the other."
        )
    if not estimator.config.is_chief:
        return FollowChiefHook()
    return StopOnPredicateHook(
        should_stop_fn,
        run_every_secs,
        run_every_steps,
        has_workers=estimator.config.num_worker_replicas > 1,
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
    """Make a hook that stops training once a metric is higher than a threshold.

    Args:
      metric_name: the name of an evaluation metric, such as "accuracy".
      threshold: training stops once a value of the metric is greater than this number.
      eval_dir: the directory of the evaluation's event files; None stands for the directory of
        an evaluation without a name.
      min_steps: the first global step whose results count; earlier results are ignored.
      run_every_secs: the minimum time between two checks of the metric, in seconds; None to count
        steps.
      run_every_steps: the minimum number of training steps between two checks; None to count
        seconds.

    Returns:
      A SessionRunHook for `estimator.train`.

    Raises:
      InvalidSetting: both or neither of the intervals are set, or an interval is out of range.
    """
    metric = _EvalMetric(estimator, metric_name, eval_dir, min_steps)
    return make_early_stopping_hook(
        estimator,
        lambda: metric.has_passed(threshold, operator.gt, "above"),
        run_every_secs,
        run_every_steps,
    )


def stop_if_lower_hook(
    estimator: Any,
    metric_name: str,
    threshold: float,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Any:
    """Make a hook that stops training once a metric is lower than a threshold.

    Args:
      metric_name: the name of an evaluation metric, such as "loss".
      threshold: training stops once a value of the metric is less than this number.
      eval_dir: the directory of the evaluation's event files; None stands for the directory of
        an evaluation without a name.
      min_steps: the first global step whose results count; earlier results are ignored.
      run_every_secs: the minimum time between two checks of the metric, in seconds; None to count
        steps.
      run_every_steps: the minimum number of training steps between two checks; None to count
        seconds.

    Returns:
      A SessionRunHook for `estimator.train`.

    Raises:
      InvalidSetting: both or neither of the intervals are set, or an interval is out of range.
    """
    metric = _EvalMetric(estimator, metric_name, eval_dir, min_steps)
    return make_early_stopping_hook(
        estimator,
        lambda: metric.has_passed(threshold, operator.lt, "below"),
        run_every_secs,
        run_every_steps,
    )


def stop_if_no_increase_hook(
    estimator: Any,
    metric_name: str,
    max_steps_without_increase: int,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Any:
    """Make a hook that stops training once a metric has stopped increasing.

    Args:
      metric_name: the name of an evaluation metric, such as "accuracy".
      max_steps_without_increase: a number of training steps. Training stops if an evaluation gives
        no new highest value, and the highest value is at least this number of steps old.
      eval_dir: the directory of the evaluation's event files; None stands for the directory of
        an evaluation without a name.
      min_steps: the first global step whose results count; earlier results are ignored.
      run_every_secs: the minimum time between two checks of the metric, in seconds; None to count
        steps.
      run_every_steps: the minimum number of training steps between two checks; None to count
        seconds.

    Returns:
      A SessionRunHook for `estimator.train`.

    Raises:
      InvalidSetting: both or neither of the intervals are set, or an interval is out of range.
    """
    metric = _EvalMetric(estimator, metric_name, eval_dir, min_steps)
    return make_early_stopping_hook(
        estimator,
        lambda: metric.stagnates(max_steps_without_increase, operator.gt, "increased"),
        run_every_secs,
        run_every_steps,
    )


def stop_if_no_decrease_hook(
    estimator: Any,
    metric_name: str,
    max_steps_without_decrease: int,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Any:
    """Make a hook that stops training once a metric has stopped decreasing.

    Args:
      metric_name: the name of an evaluation metric, such as "loss".
      max_steps_without_decrease: a number of training steps. Training stops if an evaluation gives
        no new lowest value, and the lowest value is at least this number of steps old.
      eval_dir: the directory of the evaluation's event files; None stands for the directory of
        an evaluation without a name.
      min_steps: the first global step whose results count; earlier results are ignored.
      run_every_secs: the minimum time between two checks of the metric, in seconds; None to count
        steps.
      run_every_steps: the minimum number of training steps between two checks; None to count
        seconds.

    Returns:
      A SessionRunHook for `estimator.train`.

    Raises:
      InvalidSetting: both or neither of the intervals are set, or an interval is out of range.
    """
    metric = _EvalMetric(estimator, metric_name, eval_dir, min_steps)
    return make_early_stopping_hook(
        estimator,
        lambda: metric.stagnates(max_steps_without_decrease, operator.lt, "decreased"),
        run_every_secs,
        run_every_steps,
    )


def read_eval_metrics(eval_dir: str) -> dict[int, dict[str, float]]:
    """Read the metrics of all evaluations that have written event files to a directory.

    Returns:
      Global step → metric name → value, in ascending order of steps; empty if the directory holds
      no event files.
    """
    return event_files.read_eval_events(eval_dir)


@dataclass(frozen=True)
class _EvalMetric:
    """One metric of an estimator's evaluations, as the event files record it."""

    estimator: Any
    name: str
    eval_dir: str | None
    min_steps: int

    def has_passed(
        self, threshold: float, is_beyond: Callable[[float, float], bool], side: str
    ) -> bool:
        for step, value in self._read_history():
            if is_beyond(value, threshold):
                logger.info("%s is %s %s: %g at step %d", self.name, side, threshold, value, step)
                return True
        return False

    def stagnates(
        self, max_steps: int, is_better: Callable[[float, float], bool], change: str
    ) -> bool:
        """Return whether the metric has not improved for too many training steps."""
        best_step, best = 0, None
        for step, value in self._read_history():
            if best is None or is_better(value, best):
                best_step, best = step, value
            elif step - best_step >= max_steps:
                logger.info(
                    "%s has not %s for %d steps: best %g at step %d",
                    *(self.name, change, max_steps, best, best_step),
                )
                return True
        return False

    def _read_history(self) -> Sequence[tuple[int, float]]:
        eval_dir = self.eval_dir or self.estimator.eval_dir()
        results = read_eval_metrics(eval_dir)
        if results and not any(self.name in metrics for metrics in results.values()):
            names = sorted({name for metrics in results.values() for name in metrics})
            raise InvalidSetting(
                f"no metric {self.name!r} in {eval_dir}; found {', '.join(names)}. Name one of "
                f"them, or another eval_dir."
            )
        return [
            (step, metrics[self.name])
            for step, metrics in results.items()
            if step >= self.min_steps and self.name in metrics
        ]


class StopOnPredicateHook(tf.compat.v1.train.SessionRunHook):
    """Stops training when a function returns true, and signals the stop to the other workers.

    Args:
      every_secs: the minimum time between two calls, in seconds; None to count steps.
      every_steps: the minimum number of steps between two calls; None to count seconds.
    """

    def __init__(
        self,
        should_stop_fn: Callable[[], bool],
        every_secs: float | None,
        every_steps: int | None,
        *,
        has_workers: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        validation.check_number("run_every_secs", every_secs, least=0, optional=True)
        validation.check_integer("run_every_steps", every_steps, least=1, optional=True)
        self._should_stop_fn = should_stop_fn
        self._interval = every_steps if every_secs is None else every_secs
        self._counts_steps = every_secs is None
        self._has_workers = has_workers
        self._clock = clock
        self._steps_per_run = 1
        # The time in seconds, or the global step, at which should_stop_fn is called next.
        self._next_call: float | None = None
        self._global_step: Any = None
        self._signal: Any = None

    def _set_steps_per_run(self, steps_per_run: int) -> None:
        self._steps_per_run = steps_per_run

    def should_stop(self) -> bool:
        """Return whether the function says so, whether or not a call is due."""
        return self._should_stop_fn()

    def begin(self) -> None:
        """Find the global step variable; if there are other workers, create the stop signal."""
        self._next_call = None
        self._global_step = tf.compat.v1.train.get_global_step()
        self._signal = _stop_signal() if self._has_workers else None

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Set the stop signal to False, because an earlier run can have left it True."""
        if self._signal is not None:
            session.run(self._signal.initializer)

    def before_run(self, run_context: Any) -> Any:
        """Let the next `session.run` also fetch the global step, which `after_run` reads."""
        return tf.compat.v1.train.SessionRunArgs(self._global_step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Call `should_stop_fn` if a call is due, and stop training if it returns true."""
        now = self._now(run_context.session, int(run_values.results))
        if self._next_call is not None and now < self._next_call:
            return
        assert self._interval is not None
        self._next_call = now + self._interval
        if self._should_stop_fn():
            logger.info("early stopping at step %d", run_context.session.run(self._global_step))
            if self._signal is not None:
                run_context.session.run(
                    self._signal.initializer, {self._signal.initializer.inputs[1]: True}
                )
            run_context.request_stop()

    def _now(self, session: Any, fetched_step: int) -> float:
        """Return the current time in seconds or, if the interval is in steps, the global step."""
        if not self._counts_steps:
            return self._clock()
        # The fetched global step can be too small, because TensorFlow can fetch it before the same
        # session.run increments it.
        latest = fetched_step + self._steps_per_run
        if self._next_call is not None and latest < self._next_call:
            return latest
        return float(session.run(self._global_step))


class FollowChiefHook(tf.compat.v1.train.SessionRunHook):
    """Stops training on a worker when the chief has stopped early."""

    def __init__(self) -> None:
        self._has_stopped: Any = None

    def begin(self) -> None:
        """Build the op that reads the stop signal, a variable that the chief sets to true."""
        signal = _stop_signal()
        # Read False as long as the stop signal is not initialized: this worker can start before the
        # chief initializes the variable.
        self._has_stopped = tf.cond(signal.is_initialized(), signal.read_value, lambda: False)

    def before_run(self, run_context: Any) -> Any:
        """Let the next `session.run` also fetch the stop signal, which `after_run` reads."""
        return tf.compat.v1.train.SessionRunArgs(self._has_stopped)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Stop training if the chief has set the stop signal."""
        if run_values.results:
            logger.info("early stopping, as the chief does")
            run_context.request_stop()


def _stop_signal() -> Any:
    """Get or create the stop signal: a boolean variable that the chief sets to stop workers."""
    scope = tf.compat.v1.variable_scope("signal_early_stopping", reuse=tf.compat.v1.AUTO_REUSE)
    with scope:
        return tf.compat.v1.get_variable(
            "STOP",
            shape=[],
            dtype=tf.bool,
            initializer=tf.compat.v1.zeros_initializer(),
            collections=[_SIGNAL_COLLECTION],
            trainable=False,
            use_resource=True,
        )
