"""Evaluation on a TPU: the replicas send tensors to the host, which computes the metrics."""

import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainer.backends.base import EvalGraph
from trainer.backends.tpu.host_parts import EvalMetricsPart, HostCallPart
from trainer.backends.tpu.mode_context import TpuModeContext
from trainer.backends.tpu.replicated_step import ReplicatedStep
from trainer.backends.tpu.transfer.outfeed_results import PaddedOutfeedReceiver
from trainer.checkpoints import warm_start
from trainer.config.run_config import InputPipelineConfig
from trainer.execution import train_loop
from trainer.infeed.final_batch_padding import SpreadFinalBatch
from trainer.model.eval_metrics import EvalMetrics
from trainer.model.model_program import TPUModelProgram
from trainer.model.spec import EstimatorSpec, ModeKeys

logger = logging.getLogger("tensorflow.trainer")


def build_eval_graph(
    program: TPUModelProgram,
    input_fn: Callable[..., Any],
    checkpoint: str | None,
    steps: int | None,
    context: TpuModeContext,
) -> EvalGraph:
    """Build the graph that evaluates a model on all replicas, in the default graph.

    A smaller final batch is spread over several steps (see `SpreadFinalBatch`), so that no padding
    enters the loss.

    Args:
      checkpoint: the checkpoint that the variables will be restored from; None for initial values.
    """
    topology = context.topology
    takes_own_batches = topology.input_mode == InputPipelineConfig.PER_HOST_V2
    if topology.replicas > 1 and (takes_own_batches or len(topology.pipelines) > 1):
        logger.info(
            "metric_fn gets all batches of a step together: those of %s",
            "all replicas" if takes_own_batches else f"{len(topology.pipelines)} calls of input_fn",
        )
    metrics_part = EvalMetricsPart()
    step = ReplicatedStep(
        program,
        input_fn,
        context,
        [metrics_part, HostCallPart()],
        padding=SpreadFinalBatch(),
        steps=steps,
    )
    done = step.build_loop()
    warm_start.check_checkpoint_or_warm_start(checkpoint, program.warm_start)
    connected = step.connect(done, waits_for_results=True)
    receiver = connected.receiver
    assert isinstance(receiver, PaddedOutfeedReceiver)
    assert metrics_part.metrics is not None
    host_spec = EstimatorSpec(
        ModeKeys.EVAL,
        loss=tf.constant(0.0),
        scaffold=step.spec.scaffold_fn() if step.spec.scaffold_fn is not None else None,
        evaluation_hooks=step.spec.evaluation_hooks,
    )
    controller = _EvalLoopController(
        receiver,
        step.iterations,
        train_loop.fixed_iterations(program.config.tpu_config),
        steps,
        connected.infeed_outfeed_hook.send_next_batch_signal,
    )
    return EvalGraph(
        EvalMetrics(metrics_part.metrics.values, connected.done.op),
        host_spec,
        (*connected.hooks, controller),
        batches_done=lambda: receiver.num_full_batches,
        steps_per_run=step.iterations,
        limit_steps_per_run=controller.limit_iterations,
    )


class _EvalLoopController(tf.compat.v1.train.SessionRunHook):
    """Sets how many steps each `session.run` makes, and stops the session at the input's end."""

    def __init__(
        self,
        receiver: PaddedOutfeedReceiver,
        iterations: Any,
        iterations_per_run: int,
        steps: int | None,
        send_next_batch_signal: Callable[[int], None],
    ) -> None:
        self._receiver, self._iterations = receiver, iterations
        self._iterations_per_run, self._steps = iterations_per_run, steps
        self._send_next_batch_signal = send_next_batch_signal

    def limit_iterations(self, iterations: int) -> None:
        """Set the largest number of steps of a loop; used as `EvalGraph.limit_steps_per_run`."""
        self._iterations_per_run = min(self._iterations_per_run, iterations)

    def before_run(self, run_context: Any) -> Any:
        """Choose the number of steps of the next loop, and pass it to infeed and outfeed."""
        count = self._iterations_per_run
        if self._steps is not None:
            # Make at most one step for each batch that is left. At least one is left, because
            # after_run stops the session when all batches have been received.
            count = min(count, self._steps - self._receiver.num_full_batches)
        self._send_next_batch_signal(count)
        return tf.compat.v1.train.SessionRunArgs([], feed_dict={self._iterations: count})

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Stop the session at the end of the input, or after the requested number of batches."""
        if self._receiver.is_at_end or self._receiver.num_full_batches == self._steps:
            run_context.request_stop()
