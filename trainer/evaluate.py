"""Evaluation of a checkpoint, from the input to the metrics."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer import checkpoints, graph, input_pipeline, session, summaries
from trainer.hooks import StopAfterHook, host_call_hooks
from trainer.program import Program
from trainer.spec import ModeKeys, TPUEstimatorSpec, call_on_host

logger = logging.getLogger("tensorflow.trainer")

_RESERVED_METRICS = ("loss", checkpoints.GLOBAL_STEP)


def evaluate(
    program: Program,
    input_fn: Callable[..., Any],
    *,
    steps: int | None = None,
    hooks: Sequence[Any] = (),
    checkpoint_path: str | None = None,
    name: str | None = None,
) -> dict[str, Any]:
    """The metrics of a checkpoint, with its loss (mean over batches) and its global step.

    The metrics are also written as summaries to model_dir/eval, or model_dir/eval_NAME.

    Args:
      program: what to evaluate.
      input_fn: gives batches of (features, labels).
      steps: how many batches; None goes on until the input ends.
      hooks: the caller's; they come first.
      checkpoint_path: which checkpoint; None for the newest.
      name: tells several evaluations of one model apart.

    Raises:
      CheckpointNotFound: there is nothing to evaluate.
    """
    checkpoint = checkpoints.find(program.model_dir, checkpoint_path)
    with graph.fresh(program.config) as global_step:
        inputs = input_pipeline.build(program.call_input_fn(input_fn, ModeKeys.EVAL))
        spec = program.call_model_fn(inputs.features, inputs.labels, ModeKeys.EVAL)
        checkpoints.check_shapes(checkpoint)
        metrics = _metrics(spec)
        values = {each: value for each, (value, _) in metrics.items()}
        # Read at the end of the session, after the last update.
        final = tf.compat.v1.train.FinalOpsHook({**values, checkpoints.GLOBAL_STEP: global_step})
        all_hooks = [
            *hooks,
            *inputs.hooks,
            StopAfterHook(steps),
            *host_call_hooks(spec),
            *(spec.evaluation_hooks or ()),
            final,
        ]
        update = tf.group(*(each for _, each in metrics.values()))
        scaffold = checkpoints.with_saver(spec.scaffold(), program.config)
        with session.monitored(
            program.config, scaffold, all_hooks, checkpoint_path=checkpoint
        ) as evaluation:
            while not evaluation.should_stop():
                evaluation.run(update)
    results = {each: _plain(value) for each, value in final.final_ops_values.items()}
    directory = tf.io.gfile.join(program.model_dir, f"eval_{name}" if name else "eval")
    scalars = {
        each: value
        for each, value in results.items()
        if each != checkpoints.GLOBAL_STEP and np.ndim(value) == 0
    }
    summaries.write_scalars(directory, scalars, results[checkpoints.GLOBAL_STEP])
    logger.info(
        "evaluated %s: %s",
        checkpoint,
        ", ".join(f"{each} = {np.round(value, 5)}" for each, value in sorted(results.items())),
    )
    return results


def _metrics(spec: TPUEstimatorSpec) -> Mapping[str, Any]:
    metrics = dict(call_on_host(spec.eval_metrics)) if spec.eval_metrics else {}
    reserved = [name for name in _RESERVED_METRICS if name in metrics]
    if reserved:
        raise InvalidSetting(
            f"metric_fn returned a metric named {reserved[0]!r}, which evaluate() adds itself. "
            f"Name yours otherwise."
        )
    return {**metrics, "loss": tf.compat.v1.metrics.mean(spec.loss)}


def _plain(value: Any) -> Any:
    return value.item() if np.ndim(value) == 0 else value
