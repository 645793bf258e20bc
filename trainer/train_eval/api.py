"""train_and_evaluate: trains, evaluates on the way and exports, alone or as part of a cluster."""

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
    """The metrics of the last checkpoint, and what was exported from it.

    In one process it trains, evaluates the checkpoints that the RunConfig asks for, no two
    within an EvalSpec's throttle_secs, and the last one when training is over. Off the TPU
    evaluation runs between two training loops; a TPU is given free for it, and training then
    starts its input from the beginning, so the training input should be shuffled and repeated.
    Where training had ended before, its last checkpoint is evaluated and exported once more.

    In a cluster, which TF_CONFIG describes, each process plays its part: chief and workers
    train, ps hold variables, one evaluator evaluates each new checkpoint.

    Args:
      estimator: a `trainer.Estimator` or `trainer.TPUEstimator`.
      train_spec: how to train.
      eval_spec: how to evaluate; several, with names of their own, evaluate each checkpoint on
        several sets.

    Returns:
      (metrics, export results): a dict of metrics by name, and a list with what each exporter
      returned. For a list of EvalSpecs, both are dicts: EvalSpec name → the same. The
      metrics are None if there is no checkpoint. In a cluster, None; a master returns as one
      process does.

    Raises:
      InvalidType: an argument is of another type than it takes.
      InvalidSetting: the EvalSpecs write to one place, or the config has no part that this
        process could play.
      SystemExit: with 0, at a SIGTERM, after the running loop and its checkpoint; an evaluation
        that runs is given up.
    """
    estimator_type.check_is_estimator(estimator)
    if not isinstance(train_spec, TrainSpec):
        raise InvalidType(f"train_spec is {train_spec!r}. Give a trainer.TrainSpec.")
    specs = validate_eval_specs(eval_spec)
    role = _role(estimator.config)
    delays = [each.start_delay_secs if role == tf_config.EVALUATOR else 0 for each in specs]
    evaluators = [
        CheckpointEvaluator(estimator, spec, train_spec.max_steps, start_delay_secs=delay)
        for spec, delay in zip(specs, delays, strict=True)
    ]
    if role == tf_config.PS:
        # It has nothing to end in peace.
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
                _train_and_evaluate_here(estimator, train_spec, evaluators)
            return _results(evaluators, is_one=isinstance(eval_spec, EvalSpec))
    return None


def _role(config: Any) -> str | None:
    """The part that this process plays in a cluster; None where it is alone."""
    task_type = config.task_type
    # A resolver's cluster is one of TPU workers, which this process drives by itself.
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


def _train_and_evaluate_here(
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
        {each.spec.name: each.metrics for each in evaluators},
        {each.spec.name: each.export_results for each in evaluators},
    )
