"""Evaluates a checkpoint: computes the metrics of a model over the batches of an input_fn."""

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.backends.base import ExecutionBackend
from trainer.checkpoints import checkpoints
from trainer.execution import graceful_shutdown, host_agreement
from trainer.hooks import eval_summary, progress
from trainer.hosts.group import current_group
from trainer.model.model_program import ModelProgram

logger = logging.getLogger("tensorflow.trainer")


class EvaluationResult(dict[str, Any]):
    """Metric name → value, a NumPy scalar as in tf.estimator, which is shown as a plain number."""

    def __repr__(self) -> str:
        with _plain_numbers():
            return super().__repr__()


def evaluate(
    program: ModelProgram,
    input_fn: Callable[..., Any],
    backend: ExecutionBackend,
    *,
    steps: int | None = None,
    hooks: Sequence[Any] = (),
    checkpoint_path: str | None = None,
    name: str | None = None,
) -> dict[str, Any]:
    """Evaluate a checkpoint; return its metrics, including the loss and the global step.

    The loss is the mean over batches, each weighted by its rows if all tensors of features and
    labels have the same first dimension in each batch.

    Args:
      steps: number of batches; None for all batches of the input.
      hooks: the user's SessionRunHooks. They are called before all other hooks but
        those that initialize the input.
      checkpoint_path: the checkpoint to evaluate; None for the newest, or for initial values if
        there is no checkpoint.
      name: a name that distinguishes several evaluations of one model, for example on different
        data; None for an evaluation without a name.

    Raises:
      SystemExit: with code 0, if the evaluation is a part of train or train_and_evaluate, and the
        process received a SIGTERM.
    """
    checkpoint = host_agreement.find_same_checkpoint(
        lambda: checkpoints.find_checkpoint_or_none(program.model_dir, checkpoint_path),
        program.model_dir,
    )
    if checkpoint is None:
        logger.warning(
            "Could not find trained model in %s: evaluating initial values", program.model_dir
        )
    with backend.new_graph(program.config) as global_step:
        eval_graph = backend.build_eval_graph(program, input_fn, checkpoint, steps)
        for hook in hooks:
            _set_scaffold(hook, eval_graph.spec.scaffold)
        user_hooks = [*hooks, *(eval_graph.spec.evaluation_hooks or ())]
        if user_hooks:
            # Make one step per session.run, because the user's hooks expect a call after each step.
            eval_graph.limit_steps_per_run(1)
        update = eval_summary.count_steps(
            eval_graph.metrics.update, eval_graph.steps_per_run, user_hooks
        )
        # Read the metrics in a hook at the end of the session, after their last update.
        final = tf.compat.v1.train.FinalOpsHook(
            {**eval_graph.metrics.values, checkpoints.GLOBAL_STEP: global_step}
        )
        reporter = progress.make_batch_reporter("evaluate")
        progress_hooks = (
            [progress.BatchProgressHook(reporter, steps, eval_graph.batches_done)]
            if eval_graph.batches_done
            else []
        )
        shutdown = graceful_shutdown.current_training_shutdown()
        all_hooks = [
            *eval_graph.input_hooks,
            *hooks,
            *eval_graph.hooks,
            *(eval_graph.spec.evaluation_hooks or ()),
            *progress_hooks,
            *_shutdown_hooks(shutdown),
            final,
        ]
        scaffold = checkpoints.scaffold_with_saver(eval_graph.spec.scaffold, program.config)
        with (
            contextlib.closing(reporter),
            backend.run_scope(),
            backend.create_session(
                program.config,
                scaffold,
                all_hooks,
                checkpoint_path=checkpoint,
                recovers_lost_session=False,
            ) as session,
        ):
            while not session.should_stop():
                session.run(update)
    if shutdown is not None and shutdown.has_sigterm:
        raise graceful_shutdown.GracefulExit
    results = _report(final.final_ops_values, checkpoint)
    if current_group().is_first:
        directory = eval_directory(program.model_dir, name)
        eval_summary.write_eval_summary(directory, results, checkpoint)
    return results


def _shutdown_hooks(shutdown: graceful_shutdown.GracefulShutdownHook | None) -> list[Any]:
    """Return the hooks that end an evaluation on all hosts together with its training."""
    hooks = [graceful_shutdown.StopWithTrainingHook(shutdown)] if shutdown else []
    return [*hooks, *host_agreement.stop_together("evaluation", shutdown)]


def eval_directory(model_dir: str, name: str | None = None) -> str:
    """Return the directory of an evaluation's summaries."""
    return str(tf.io.gfile.join(model_dir, f"eval_{name}" if name else "eval"))


def _report(values: Mapping[str, Any], checkpoint: str | None) -> EvaluationResult:
    """Log an evaluation's results, and return them."""
    with _plain_numbers():
        progress.estimator_logger.info(
            "Saving dict for global step %d: %s",
            values[checkpoints.GLOBAL_STEP],
            ", ".join(f"{key} = {_format_bytes(value)}" for key, value in sorted(values.items())),
        )
        logger.info(
            "evaluated %s: %s",
            checkpoint or "initial values",
            ", ".join(f"{key} = {_format_value(value)}" for key, value in sorted(values.items())),
        )
    return EvaluationResult(values)


def _plain_numbers() -> Any:
    """Return a context in which NumPy shows scalars as Python does, not as np.float32(0.5)."""
    return np.printoptions(legacy="1.21")


def _set_scaffold(hook: Any, scaffold: Any) -> None:
    """Pass the Scaffold of model_fn's spec to a hook that has a method `_set_scaffold`."""
    set_scaffold = getattr(hook, "_set_scaffold", None)
    if set_scaffold is not None:
        set_scaffold(scaffold)


def _format_bytes(value: Any) -> Any:
    return f"{len(value)} bytes" if isinstance(value, bytes) else value


def _format_value(value: Any) -> Any:
    return f"{value:.5g}" if isinstance(value, float | np.floating) else _format_bytes(value)
