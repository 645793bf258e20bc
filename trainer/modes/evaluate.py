"""Evaluation of a checkpoint, from the input to the metrics."""

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.backends import monitored_session as sessions
from trainer.backends.base import ExecutionBackend
from trainer.checkpoints import checkpoints
from trainer.execution import graceful_shutdown
from trainer.hooks import eval_summary, progress
from trainer.model.model_program import ModelProgram

logger = logging.getLogger("tensorflow.trainer")


def evaluate(
    program: ModelProgram,
    input_fn: Callable[..., Any],
    place: ExecutionBackend,
    *,
    steps: int | None = None,
    hooks: Sequence[Any] = (),
    checkpoint_path: str | None = None,
    name: str | None = None,
) -> dict[str, Any]:
    """The metrics of a checkpoint, with its loss and its global step.

    The loss is the mean over batches, each weighted by its rows. All are also written as summaries
    to model_dir/eval, or model_dir/eval_NAME.

    Args:
      program: what to evaluate.
      input_fn: gives batches of (features, labels).
      place: where it runs.
      steps: how many batches; None goes on until the input ends.
      hooks: the caller's; they come first.
      checkpoint_path: which checkpoint; None for the newest, or for initial values where there is
        none.
      name: tells several evaluations of one model apart.

    Raises:
      CheckpointNotFound: the checkpoint that was asked for is not there.
      SystemExit: with 0, without results, at a SIGTERM within a training or train_and_evaluate.
    """
    checkpoint = checkpoints.find_checkpoint_or_none(program.model_dir, checkpoint_path)
    if checkpoint is None:
        logger.warning(
            "Could not find trained model in %s: evaluating initial values", program.model_dir
        )
    with place.graph(program.config) as global_step:
        model = place.evaluation(program, input_fn, checkpoint, steps)
        # Read at the end of the session, after the last update.
        final = tf.compat.v1.train.FinalOpsHook(
            {**model.metrics.values, checkpoints.GLOBAL_STEP: global_step}
        )
        reporter = progress.make_batch_reporter("evaluate")
        counted = (
            [progress.BatchProgressHook(reporter, steps, model.batches_done)]
            if model.batches_done
            else []
        )
        ending = graceful_shutdown.current_training_shutdown()
        all_hooks = [
            *hooks,
            *model.hooks,
            *(model.spec.evaluation_hooks or ()),
            *counted,
            *([graceful_shutdown.StopWithTrainingHook(ending)] if ending else []),
            final,
        ]
        scaffold = checkpoints.scaffold_with_saver(model.spec.scaffold, program.config)
        with (
            contextlib.closing(reporter),
            place.running(),
            sessions.create_monitored_session(
                program.config,
                place,
                scaffold,
                all_hooks,
                checkpoint_path=checkpoint,
                recovers=False,
            ) as session,
        ):
            while not session.should_stop():
                session.run(model.metrics.update)
    if ending is not None and ending.is_asked_for:
        raise graceful_shutdown.GracefulExit
    progress.estimator_logger.info(
        "Saving dict for global step %d: %s",
        final.final_ops_values[checkpoints.GLOBAL_STEP],
        ", ".join(f"{each} = {_in_words(v)}" for each, v in sorted(final.final_ops_values.items())),
    )
    results = {each: _plain(value) for each, value in final.final_ops_values.items()}
    eval_summary.write_eval_summary(eval_directory(program.model_dir, name), results, checkpoint)
    logger.info(
        "evaluated %s: %s",
        checkpoint or "initial values",
        ", ".join(f"{each} = {_short(value)}" for each, value in sorted(results.items())),
    )
    return results


def eval_directory(model_dir: str, name: str | None = None) -> str:
    """Where the results of an evaluation are written."""
    return str(tf.io.gfile.join(model_dir, f"eval_{name}" if name else "eval"))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) and np.ndim(value) == 0 else value


def _in_words(value: Any) -> Any:
    return f"{len(value)} bytes" if isinstance(value, bytes) else value


def _short(value: Any) -> Any:
    return f"{value:.5g}" if isinstance(value, float) else _in_words(value)
