"""train_and_evaluate: trains, evaluates and exports, in a single process or in a cluster."""

import contextlib
from collections.abc import Sequence
from typing import Any

from tpuserve.errors import InvalidSetting, InvalidType
from trainer.config import tf_config
from trainer.estimator import estimator_type
from trainer.execution import graceful_shutdown
from trainer.train_eval import distributed, local
from trainer.train_eval.checkpoint_evaluator import CheckpointEvaluator
from trainer.train_eval.specs import EvalSpec, TrainSpec, validate_eval_specs

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
    estimator_type.check_is_estimator(estimator)
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
    return str(task_type)


def _train_and_evaluate_locally(
    estimator: Any, train_spec: TrainSpec, evaluators: Sequence[CheckpointEvaluator]
) -> None:
    if estimator.evaluates_on_tpu:
        local.evaluate_between_trainings(estimator, train_spec, evaluators)
    else:
        local.evaluate_within_training(estimator, train_spec, evaluators)


def _results(evaluators: Sequence[CheckpointEvaluator], *, is_one: bool) -> tuple[Any, Any]:
    if is_one:
        return evaluators[0].metrics, evaluators[0].export_results
    return (
        {evaluator.spec.name: evaluator.metrics for evaluator in evaluators},
        {evaluator.spec.name: evaluator.export_results for evaluator in evaluators},
    )
