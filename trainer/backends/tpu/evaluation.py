"""Evaluation on a TPU: every replica sends what the metrics are made of, the host makes them."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tpuserve.errors import InvalidType
from trainer.backends.base import EvalGraph
from trainer.backends.tpu import lowered_targets
from trainer.backends.tpu.mode_context import TpuModeContext
from trainer.backends.tpu.step import tpu_loop
from trainer.backends.tpu.transfer import outfeed_results
from trainer.backends.tpu.transfer.infeed_outfeed_hook import InfeedOutfeedHook
from trainer.backends.tpu.transfer.outfeed import Outfeed
from trainer.checkpoints import warm_start
from trainer.distribution.topology import BatchTopology
from trainer.execution import iterations_per_loop
from trainer.hooks.training_hooks import SummaryWritersHook
from trainer.infeed.final_batch_padding import SpreadFinalBatch
from trainer.model import eval_metrics
from trainer.model.host_call import call_on_host
from trainer.model.model_program import TPUModelProgram
from trainer.model.spec import EstimatorSpec, ModeKeys, TPUEstimatorSpec

logger = logging.getLogger("tensorflow.trainer")


def build(
    program: TPUModelProgram,
    input_fn: Callable[..., Any],
    checkpoint: str | None,
    steps: int | None,
    setting: TpuModeContext,
) -> EvalGraph:
    """The model in evaluation on all replicas.

    A last batch that is smaller than the others is spread over several steps, in which each
    replica has at most one real row, repeated: so its loss is the loss of that row.

    Args:
      program, input_fn, checkpoint: see `trainer.backends.local.build`.
      steps: how many batches to take; None goes on until the input ends.
      setting: where it runs.
    """
    topology = setting.topology
    replica, fed = setting.fed(program, input_fn, padding=SpreadFinalBatch(), steps=steps)
    sent = Outfeed(topology)
    found: list[TPUEstimatorSpec] = []

    def step(done: Any) -> Any:
        batch = fed.dequeue()
        spec = replica.call_model_fn(batch.features, batch.labels, ModeKeys.EVAL)
        if not isinstance(spec, TPUEstimatorSpec):
            raise InvalidType(
                f"model_fn returned an {type(spec).__name__} for an evaluation on a TPU. Return "
                f"a TPUEstimatorSpec, or evaluate with eval_on_tpu=False."
            )
        found.append(spec)
        tensors = {
            "loss": tf.reshape(tf.cast(spec.loss, tf.float32), [1]),
            "mask": batch.mask,
            "metrics": spec.eval_metrics[1] if spec.eval_metrics else [],
            "host_call": spec.host_call[1] if spec.host_call else [],
        }
        return sent.enqueue(tensors, "eval_metrics or host_call tensor ")

    iterations = tf.compat.v1.placeholder_with_default(1, [], name="iterations")
    _, done = tpu_loop.build_tpu_loop(step, iterations, topology, replica.device_assignment)
    (spec,) = found
    warm_start.check_checkpoint_or_warm_start(checkpoint, program.warm_start)
    received = sent.dequeue()
    ready = lowered_targets.ready([done, fed.enqueue, *tf.nest.flatten(received)], setting.device)
    done, enqueue, *received = ready.targets
    metrics = _Metrics(spec, sent, topology)
    per_loop = iterations_per_loop.fixed_iterations(program.config.tpu_config)
    feeding = InfeedOutfeedHook(
        fed,
        enqueue,
        setting.rendezvous,
        results=received,
        on_result=metrics.take,
        waits_for_results=True,
        end_infeed=ready.end_infeeds,
        end_outfeed=ready.end_outfeeds,
    )
    outside = EstimatorSpec(
        ModeKeys.EVAL,
        loss=tf.constant(0.0),
        scaffold=spec.scaffold_fn() if spec.scaffold_fn is not None else None,
        evaluation_hooks=spec.evaluation_hooks,
    )
    pace = _Pace(metrics, iterations, per_loop, steps, feeding.send_next_batch_signal)
    writers = [SummaryWritersHook()] if spec.host_call else []
    return EvalGraph(
        eval_metrics.EvalMetrics(metrics.values, done.op),
        outside,
        (*fed.hooks, feeding, pace, *writers),
        lambda: metrics.whole_batches,
    )


class _Metrics:
    """The host's part: metric ops that are fed with the real rows of what the replicas sent."""

    def __init__(self, spec: TPUEstimatorSpec, sent: Outfeed, topology: BatchTopology) -> None:
        self._results = outfeed_results.Results(sent, topology)
        # The rows that are real are known only when they are here.
        self._places = sent.pack(
            [tf.compat.v1.placeholder(each.dtype, [None, *each.shape[1:]]) for each in sent.specs]
        )
        self._weights = tf.compat.v1.placeholder(tf.float32, [None])
        metrics = (
            call_on_host((spec.eval_metrics[0], self._places["metrics"]))
            if spec.eval_metrics
            else {}
        )
        built = eval_metrics.build_eval_metrics(metrics, self._places["loss"], self._weights)
        self.values = built.values
        self._updates = [built.update]
        if spec.host_call:
            self._updates.append(call_on_host((spec.host_call[0], self._places["host_call"])))
        self.whole_batches = 0
        self.is_over = False

    def take(self, session: Any, received: list[Any]) -> None:
        """Takes the results of one step into account, but for filler."""
        step = self._results.of_step(received)
        if not step.rows.any():
            self.is_over = True
            return
        self.whole_batches += int(step.is_whole)
        real = step.real()
        # Each replica's loss is a mean over its rows, of which some may be filler.
        real["loss"] = step.of_replicas("loss")
        feeds = dict(zip(tf.nest.flatten(self._places), tf.nest.flatten(real), strict=True))
        feeds[self._weights] = step.rows.astype(np.float32)
        session.run(self._updates, feeds)


class _Pace(tf.compat.v1.train.SessionRunHook):
    """Makes loops as long as the evaluation may need, and ends it with the input."""

    def __init__(
        self,
        metrics: _Metrics,
        iterations: Any,
        per_loop: int,
        steps: int | None,
        announce: Callable[[int], None],
    ) -> None:
        self._metrics, self._iterations, self._per_loop = metrics, iterations, per_loop
        self._steps, self._announce = steps, announce

    def before_run(self, run_context: Any) -> Any:
        """Says how many steps to make."""
        count = self._per_loop
        if self._steps is not None:
            # A small batch may need more steps than one.
            count = min(count, max(self._steps - self._metrics.whole_batches, 1))
        self._announce(count)
        return tf.compat.v1.train.SessionRunArgs([], feed_dict={self._iterations: count})

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Stops when there is no real row left, or all batches have been whole."""
        if self._metrics.is_over or self._metrics.whole_batches == self._steps:
            run_context.request_stop()
