"""train_and_evaluate: trains, evaluates and exports, in a single process or in a cluster."""

import contextlib
import logging
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting, InvalidType
from trainer.config import tf_config
from trainer.estimator import plain_export
from trainer.estimator.early_stopping import StopOnPredicateHook
from trainer.execution import graceful_shutdown
from trainer.hooks.training_hooks import StopForEvaluationHook
from trainer.hosts.group import current_group
from trainer.train_eval import distributed
from trainer.train_eval.checkpoint_evaluator import CheckpointEvaluator
from trainer.train_eval.specs import EvalSpec, TrainSpec, validate_eval_specs

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


__all__ = ["EvalSpec", "TrainSpec", "train_and_evaluate"]

_ROLES = (tf_config.CHIEF, tf_config.MASTER, tf_config.WORKER, tf_config.PS, tf_config.EVALUATOR)


def train_and_evaluate(
    estimator: Any, train_spec: TrainSpec, eval_spec: EvalSpec | Sequence[EvalSpec]
) -> tuple[Any, Any] | None:
    """Train a model, evaluate its checkpoints during training, and export the model.

    In a single process, the function trains, and saves checkpoints as often as the RunConfig says.
    It evaluates a new checkpoint if throttle_secs have passed since the last evaluation of the
    EvalSpec began. The last checkpoint is always evaluated. On the CPU, an evaluation runs
    between two training loops; a training loop is one `session.run`. On a TPU, training releases
    the TPU for the evaluation and then restarts its input from the beginning. Therefore shuffle
    and repeat the training input. On a TPU, a training without max_steps, which ends when its input
    ends, is not interrupted: only its last checkpoint is evaluated. If training was complete before
    the call, the last checkpoint is evaluated and exported again.

    In a cluster, which TF_CONFIG describes, the task of the process decides its work: the chief and
    the workers train, a ps holds variables, and one evaluator evaluates each new checkpoint.

    On several hosts of a TPU, every host calls the function, and trains and evaluates as a single
    process does. Host 0 decides when an evaluation is due, and calls the exporters.

    Args:
      estimator: a `trainer.Estimator` or `trainer.TPUEstimator`.
      eval_spec: the settings of evaluation. A list of EvalSpecs with distinct names evaluates
        each checkpoint on several data sets.

    Returns:
      The metrics of the last checkpoint, a dict of metric name → value, and a list of the
      exporters' results. For a list of EvalSpecs, both are dicts whose keys are the names of the
      EvalSpecs: name → metrics, and name → list of results. The metrics are None if there is no
      checkpoint. In a cluster the function returns None, except for a task of type master, which
      returns the same as a single process.

    Raises:
      InvalidType: an argument has a wrong type.
      InvalidSetting: two EvalSpecs write to the same directory, or train_and_evaluate has no work
        for the task of this process.
      SystemExit: with status 0 after a SIGTERM, once the running training loop has ended and
        a checkpoint is saved; a running evaluation is abandoned.
    """
    plain_export.check_is_estimator(estimator)
    if not isinstance(train_spec, TrainSpec):
        raise InvalidType(f"train_spec is {train_spec!r}. Give a trainer.TrainSpec.")
    specs = validate_eval_specs(eval_spec)
    # Ignore the task type on the hosts of a TPU: each of them trains and evaluates, as a single
    # process does, and none of them is a worker or an evaluator.
    is_host = getattr(estimator, "runs_on_several_hosts", False)
    role = None if is_host else _resolve_role(estimator.config)
    delays = [spec.start_delay_secs if role == tf_config.EVALUATOR else 0 for spec in specs]
    evaluators = [
        CheckpointEvaluator(estimator, spec, train_spec.max_steps, start_delay_secs=delay)
        for spec, delay in zip(specs, delays, strict=True)
    ]
    if role == tf_config.PS:
        # Let SIGTERM end a parameter server at once. It has no checkpoint to save, because only the
        # chief saves checkpoints.
        distributed.run_parameter_server(estimator.config)
        return None
    with graceful_shutdown.sigterm_watcher():
        if role == tf_config.EVALUATOR:
            distributed.evaluate_continuously(evaluators, estimator.model_dir, train_spec.max_steps)
        elif role == tf_config.WORKER:
            distributed.train_as_worker(estimator, train_spec)
        elif role == tf_config.CHIEF:
            distributed.train_as_chief(estimator, train_spec)
        else:
            with distributed.running_server(estimator.config) if role else contextlib.nullcontext():
                _train_and_evaluate_locally(estimator, train_spec, evaluators)
            return _results(evaluators, is_one=isinstance(eval_spec, EvalSpec))
    return None


def _resolve_role(config: Any) -> str | None:
    """Return the task type of this process in a cluster; None for a single process."""
    task_type = config.task_type
    # Ignore the cluster of a cluster resolver, such as a TPUClusterResolver.
    is_member = config.cluster is None and config.cluster_spec
    if not is_member and task_type != tf_config.EVALUATOR:
        return None
    if task_type not in _ROLES:
        raise InvalidSetting(
            f"the task type of the config is {task_type!r}. Set it by TF_CONFIG to one of "
            f"{', '.join(_ROLES)}."
        )
    if task_type == tf_config.EVALUATOR and config.task_id:
        raise InvalidSetting(
            f"there can be only one evaluator task, with index 0; this one has index "
            f"{config.task_id}. Give an EvalSpec for each set to one evaluator."
        )
    is_chief = task_type == tf_config.WORKER and config.is_chief
    return tf_config.CHIEF if is_chief else str(task_type)


def _train_and_evaluate_locally(
    estimator: Any, train_spec: TrainSpec, evaluators: Sequence[CheckpointEvaluator]
) -> None:
    if estimator.evaluates_on_tpu:
        evaluate_between_trainings(estimator, train_spec, evaluators)
    else:
        evaluate_within_training(estimator, train_spec, evaluators)


def _results(evaluators: Sequence[CheckpointEvaluator], *, is_one: bool) -> tuple[Any, Any]:
    if is_one:
        return evaluators[0].metrics, evaluators[0].export_results
    return (
        {evaluator.spec.name: evaluator.metrics for evaluator in evaluators},
        {evaluator.spec.name: evaluator.export_results for evaluator in evaluators},
    )
