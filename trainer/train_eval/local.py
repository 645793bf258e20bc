"""Implements train_and_evaluate in a single process, which trains and evaluates alternately."""

import logging
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from trainer.estimator.early_stopping import StopOnPredicateHook
from trainer.execution import graceful_shutdown
from trainer.hooks.training_hooks import StopForEvaluationHook
from trainer.hosts.group import current_group
from trainer.train_eval.checkpoint_evaluator import CheckpointEvaluator
from trainer.train_eval.specs import TrainSpec

logger = logging.getLogger("tensorflow.trainer")

# Errors of a hook that a MonitoredSession handles itself and does not raise: it treats such an
# error as the end of the input, or creates its session again.
_ERRORS_HANDLED_BY_SESSIONS = (
    StopIteration,
    tf.errors.OutOfRangeError,
    tf.errors.AbortedError,
    tf.errors.UnavailableError,
)


def evaluate_within_training(
    estimator: Any, train_spec: TrainSpec, evaluators: Sequence[CheckpointEvaluator]
) -> None:
    """Train in one session, and evaluate a new checkpoint between two training loops.

    A training loop is one `session.run`. After an evaluation, training continues with the next
    batch of its input.
    """
    new_checkpoints = _NewCheckpointListener()
    hook = _EvaluateBetweenLoopsHook(new_checkpoints, evaluators)
    _train(estimator, train_spec, [hook], [new_checkpoints])
    if hook.error is not None:
        raise hook.error
    _evaluate_final_checkpoint(evaluators)


def evaluate_between_trainings(
    estimator: Any, train_spec: TrainSpec, evaluators: Sequence[CheckpointEvaluator]
) -> None:
    """Train until an evaluation is due, release the device, evaluate, and resume training.

    Whenever training resumes, it starts its input from the beginning.
    """
    if train_spec.max_steps is None:
        logger.warning(
            "no evaluation during training: the input would start again after it, and training "
            "without max_steps ends only with its input. Set TrainSpec.max_steps to evaluate "
            "during training"
        )
        _train(estimator, train_spec, [], [])
    else:
        _alternate(estimator, train_spec, evaluators, train_spec.max_steps)
    _evaluate_final_checkpoint(evaluators)


def _alternate(
    estimator: Any,
    train_spec: TrainSpec,
    evaluators: Sequence[CheckpointEvaluator],
    max_steps: int,
) -> None:
    """Train until max_steps, and interrupt training whenever an evaluation is due."""
    while True:
        listener = _EvaluationDueListener(evaluators, max_steps)
        hook = StopForEvaluationHook(listener.is_evaluation_due)
        _train(estimator, train_spec, [hook], [listener])
        # Let host 0 decide for all hosts whether an evaluation is due. The CheckpointSaverListener
        # that finds this out is called only on host 0, which saves the checkpoints.
        is_due = current_group().broadcast("an evaluation", hook.has_stopped)
        stops = current_group().gather("the end of training", hook.was_stop_requested)
        if not is_due or any(stops):
            break
        for evaluator in evaluators:
            if _is_due(evaluator):
                evaluator.evaluate()
        if current_group().run_on_first("early stopping", lambda: _stops_early(train_spec)):
            break


def _stops_early(train_spec: TrainSpec) -> bool:
    """Return whether a hook of early stopping ends training with what an evaluation has found."""
    hooks = train_spec.hooks or ()
    return any(hook.should_stop() for hook in hooks if isinstance(hook, StopOnPredicateHook))


def _train(
    estimator: Any, train_spec: TrainSpec, hooks: Sequence[Any], listeners: Sequence[Any]
) -> None:
    estimator.train(
        train_spec.input_fn,
        max_steps=train_spec.max_steps,
        hooks=[*hooks, *(train_spec.hooks or ())],
        saving_listeners=[*(train_spec.saving_listeners or ()), *listeners],
    )


def _is_due(evaluator: CheckpointEvaluator) -> bool:
    is_due: bool = current_group().broadcast("whether to evaluate", evaluator.is_due())
    return is_due


def _evaluate_final_checkpoint(evaluators: Sequence[CheckpointEvaluator]) -> None:
    for evaluator in evaluators:
        evaluator.evaluate(is_final=True)


class _NewCheckpointListener(tf.compat.v1.train.CheckpointSaverListener):
    """Records whether training has saved a checkpoint since the last call of `consume`."""

    def __init__(self) -> None:
        self._saves = 0
        self._has_new_checkpoint = False

    def begin(self) -> None:
        self._saves = 0

    def after_save(self, session: Any, global_step_value: int) -> None:
        # Ignore the first checkpoint, which training saves before its first step: it has the
        # variables from which training starts, and is not to be evaluated.
        self._saves += 1
        self._has_new_checkpoint = self._saves > 1

    def consume(self, *, stops: bool) -> bool:
        """Return whether a checkpoint was saved since the last call, and training does not stop."""
        had_new_checkpoint, self._has_new_checkpoint = self._has_new_checkpoint, False
        # Return the answer of host 0 on all hosts: this listener is called only on host 0, which
        # saves the checkpoints.
        had_new: bool = current_group().broadcast(
            "a new checkpoint", had_new_checkpoint and not stops
        )
        return had_new


class _EvaluateBetweenLoopsHook(tf.compat.v1.train.SessionRunHook):
    """Evaluates a new checkpoint after the training loop (one `session.run`) that has saved it."""

    def __init__(
        self, listener: _NewCheckpointListener, evaluators: Sequence[CheckpointEvaluator]
    ) -> None:
        self.error: Exception | None = None
        self._listener = listener
        self._evaluators = evaluators

    def before_run(self, run_context: Any) -> None:
        # Evaluate what a CheckpointSaverHook of the user has saved: it comes after this hook.
        self._evaluate_new_checkpoint(run_context)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        # Evaluate before the user's hooks are called, so that these can stop training at this step.
        self._evaluate_new_checkpoint(run_context)

    def _evaluate_new_checkpoint(self, run_context: Any) -> None:
        if not self._listener.consume(stops=run_context.stop_requested):
            return
        for evaluator in self._evaluators:
            if not _is_due(evaluator):
                logger.info("no evaluation: the last one began less than throttle_secs ago")
                continue
            try:
                evaluator.evaluate()
            except graceful_shutdown.GracefulExit:
                # A SIGTERM has ended the evaluation. Return to training, which saves a checkpoint
                # and stops.
                return
            except _ERRORS_HANDLED_BY_SESSIONS as error:
                self.error = error
                run_context.request_stop()
                return


class _EvaluationDueListener(tf.compat.v1.train.CheckpointSaverListener):
    """Records whether an evaluation was due when training saved a checkpoint."""

    def __init__(self, evaluators: Sequence[CheckpointEvaluator], max_steps: int) -> None:
        self._is_evaluation_due = False
        self._evaluators = evaluators
        self._max_steps = max_steps
        self._is_first = True

    def begin(self) -> None:
        self._is_first = True

    def after_save(self, session: Any, global_step_value: int) -> None:
        is_first, self._is_first = self._is_first, False
        is_last = global_step_value >= self._max_steps
        if is_first or is_last or not any(evaluator.is_due() for evaluator in self._evaluators):
            return
        self._is_evaluation_due = True

    def is_evaluation_due(self) -> bool:
        return self._is_evaluation_due
