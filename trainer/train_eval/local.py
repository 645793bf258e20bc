"""Training and evaluation by turns in one process."""

import logging
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from trainer.execution import graceful_shutdown
from trainer.train_eval.checkpoint_evaluator import CheckpointEvaluator
from trainer.train_eval.specs import TrainSpec

logger = logging.getLogger("tensorflow.trainer")

# A session takes these for the end of the input, or for a reason to start over.
_SWALLOWED_BY_SESSIONS = (
    StopIteration,
    tf.errors.OutOfRangeError,
    tf.errors.AbortedError,
    tf.errors.UnavailableError,
)


def evaluate_within_training(
    estimator: Any, train_spec: TrainSpec, evaluators: Sequence[CheckpointEvaluator]
) -> None:
    """Trains in one go, and evaluates between two loops when a checkpoint has been written.

    The training input runs on from where it is. Needs a device that holds both at once.

    Args:
      estimator: what to train.
      train_spec: how.
      evaluators: asked about every checkpoint but the one that training starts from.
    """
    watch = _CheckpointWatch()
    hook = _EvaluateBetweenLoops(watch, evaluators)
    _train(estimator, train_spec, [hook], [watch])
    if hook.error is not None:
        raise hook.error
    _evaluate_at_the_end(evaluators)


def evaluate_between_trainings(
    estimator: Any, train_spec: TrainSpec, evaluators: Sequence[CheckpointEvaluator]
) -> None:
    """Trains until a checkpoint is due for evaluation, lets go of the device, evaluates, goes on.

    Each part of the training starts its input from the beginning.

    Args:
      estimator: what to train.
      train_spec: how.
      evaluators: asked about every checkpoint but the one that training starts from.
    """
    while True:
        stop = _StopWhenDue(evaluators, train_spec.max_steps)
        last = _StopRequests(stop)
        _train(estimator, train_spec, [last], [stop])
        if not stop.has_stopped or last.were_seen:
            break
        for evaluator in evaluators:
            if evaluator.is_due():
                evaluator.evaluate()
    _evaluate_at_the_end(evaluators)


def _train(
    estimator: Any, train_spec: TrainSpec, hooks: Sequence[Any], listeners: Sequence[Any]
) -> None:
    estimator.train(
        train_spec.input_fn,
        max_steps=train_spec.max_steps,
        hooks=[*(train_spec.hooks or ()), *hooks],
        saving_listeners=[*(train_spec.saving_listeners or ()), *listeners],
    )


def _evaluate_at_the_end(evaluators: Sequence[CheckpointEvaluator]) -> None:
    for evaluator in evaluators:
        evaluator.evaluate(is_final=True)


class _CheckpointWatch(tf.compat.v1.train.CheckpointSaverListener):
    """Knows whether training has written a checkpoint that nobody has asked about."""

    def __init__(self) -> None:
        self._saves = 0
        self._has_new = False

    def begin(self) -> None:
        self._saves = 0

    def after_save(self, session: Any, global_step_value: int) -> None:
        # The first is of the step that training starts from.
        self._saves += 1
        self._has_new = self._saves > 1

    def take(self) -> bool:
        had_new, self._has_new = self._has_new, False
        return had_new


class _EvaluateBetweenLoops(tf.compat.v1.train.SessionRunHook):
    """Evaluates before the next loop, and so never a checkpoint that turns out to be the last.

    That one is evaluated when the training session is closed, and exporters are told so.
    """

    def __init__(self, watch: _CheckpointWatch, evaluators: Sequence[CheckpointEvaluator]) -> None:
        self.error: Exception | None = None
        self._watch = watch
        self._evaluators = evaluators

    def before_run(self, run_context: Any) -> None:
        if not self._watch.take():
            return
        for evaluator in self._evaluators:
            if not evaluator.is_due():
                logger.info("no evaluation: the last one began less than throttle_secs ago")
                continue
            try:
                evaluator.evaluate()
            except graceful_shutdown.GracefulExit:
                # Training stops after this loop, and saves what it has come to.
                return
            except _SWALLOWED_BY_SESSIONS as error:
                self.error = error
                run_context.request_stop()
                return


class _StopWhenDue(tf.compat.v1.train.CheckpointSaverListener):
    """Wants training to stop at a checkpoint that an evaluator is due for, unless it ends there.

    Attributes:
      has_stopped: whether there was one.
    """

    def __init__(self, evaluators: Sequence[CheckpointEvaluator], max_steps: int | None) -> None:
        self.has_stopped = False
        self._evaluators = evaluators
        self._max_steps = max_steps
        self._is_first = True

    def begin(self) -> None:
        self._is_first = True

    def after_save(self, session: Any, global_step_value: int) -> None:
        is_first, self._is_first = self._is_first, False
        is_last = self._max_steps is not None and global_step_value >= self._max_steps
        if is_first or is_last or not any(each.is_due() for each in self._evaluators):
            return
        self.has_stopped = True


class _StopRequests(tf.compat.v1.train.SessionRunHook):
    """Stops training for an evaluation, behind the hooks that may ask it to stop for good.

    Attributes:
      were_seen: whether one of them has.
    """

    def __init__(self, stop: _StopWhenDue) -> None:
        self.were_seen = False
        self._stop = stop

    def after_run(self, run_context: Any, run_values: Any) -> None:
        # The checkpoint was saved before: hooks find the one of the step they are called for.
        self.were_seen = self.were_seen or run_context.stop_requested
        if self._stop.has_stopped:
            run_context.request_stop()
