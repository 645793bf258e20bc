"""Prediction on a TPU: every replica sends its predictions, the host drops the filler."""

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.backends.base import PredictGraph
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
from trainer.infeed.final_batch_padding import PadFinalBatch
from trainer.model.host_call import call_on_host
from trainer.model.model_program import TPUModelProgram
from trainer.model.spec import EstimatorSpec, ModeKeys, TPUEstimatorSpec

# What one message of the runtime can hold.
_MOST_BYTES = 2**30


def build(
    program: TPUModelProgram,
    input_fn: Callable[..., Any],
    checkpoint: str | None,
    select: Callable[[Any], Any],
    setting: TpuModeContext,
) -> PredictGraph:
    """The model in prediction on all replicas.

    Args:
      program, input_fn, checkpoint: see `trainer.backends.local.build`.
      select: takes model_fn's predictions and gives those that are wanted.
      setting: where it runs.

    Raises:
      InvalidSetting: predictions are no dict, have no static shape, or are too large.
    """
    if setting.batch_axis is not None:
        raise InvalidSetting(
            f"batch_axis is {setting.batch_axis}, and predictions come row by row: predict() on a "
            f"TPU splits the first axis. Use another estimator, without batch_axis."
        )
    topology = setting.topology
    replica, fed = setting.fed(program, input_fn, padding=PadFinalBatch())
    sent = Outfeed(topology)
    found: list[Any] = []

    def step(done: Any) -> Any:
        batch = fed.dequeue()
        spec = replica.call_model_fn(batch.features, batch.labels, ModeKeys.PREDICT)
        found.append(spec)
        wanted = select(spec.predictions)
        if not isinstance(wanted, dict):
            raise InvalidSetting(
                f"predictions are {wanted!r:.100}, and must be a dict of tensors on a TPU. "
                f"Return predictions={{'name': tensor}} from model_fn."
            )
        host_call = getattr(spec, "host_call", None)
        enqueue = sent.enqueue(
            {
                outfeed_results.MASK: batch.mask,
                "predictions": wanted,
                "host_call": host_call[1] if host_call else [],
            },
            "predictions or host_call tensor ",
        )
        _check_size(sent, topology)
        return enqueue

    iterations = tf.compat.v1.placeholder_with_default(1, [], name="iterations")
    _, done = tpu_loop.build_tpu_loop(step, iterations, topology, replica.device_assignment)
    (spec,) = found
    warm_start.check_checkpoint_or_warm_start(checkpoint, program.warm_start)
    received = sent.dequeue()
    ready = lowered_targets.ready([done, fed.enqueue, *tf.nest.flatten(received)], setting.device)
    done, enqueue, *received = ready.targets
    host_call = _HostCall(spec, sent)
    steps: list[outfeed_results.Step] = []
    read = outfeed_results.Results(sent, topology)

    def take(session: Any, arrays: list[Any]) -> None:
        step = read.of_step(arrays)
        if step.rows.any():
            host_call.run(session, step)
        steps.append(step)

    feeding = InfeedOutfeedHook(
        fed,
        enqueue,
        setting.rendezvous,
        results=received,
        on_result=take,
        waits_for_results=True,
        end_infeed=ready.end_infeeds,
        end_outfeed=ready.end_outfeeds,
    )
    per_loop = iterations_per_loop.fixed_iterations(program.config.tpu_config)

    def batches(session: Any) -> Iterator[Any]:
        while not session.should_stop():
            steps.clear()
            feeding.send_next_batch_signal(per_loop)
            session.run(done.op, {iterations: per_loop})
            for each in list(steps):
                if not each.rows.any():
                    return
                yield each.real()["predictions"]

    scaffold = None
    if isinstance(spec, TPUEstimatorSpec):
        scaffold = spec.scaffold_fn() if spec.scaffold_fn is not None else None
    outside = EstimatorSpec(
        ModeKeys.PREDICT,
        predictions=tf.constant(0.0),
        scaffold=scaffold,
        prediction_hooks=spec.prediction_hooks,
    )
    return PredictGraph(batches, outside, (*fed.hooks, feeding, *host_call.hooks))


class _HostCall:
    """The model's host_call, fed with the real rows of what the replicas sent."""

    def __init__(self, spec: Any, sent: Outfeed) -> None:
        self._fetches = None
        self.hooks: list[Any] = []
        host_call = getattr(spec, "host_call", None)
        if not host_call:
            return
        places = sent.pack(
            [tf.compat.v1.placeholder(each.dtype, [None, *each.shape[1:]]) for each in sent.specs]
        )
        self._places = tf.nest.flatten(places["host_call"])
        self._fetches = call_on_host((host_call[0], places["host_call"]))
        self.hooks = [SummaryWritersHook()]

    def run(self, session: Any, step: outfeed_results.Step) -> None:
        """Calls it for one step."""
        if self._fetches is not None:
            arrays = tf.nest.flatten(step.real()["host_call"])
            session.run(self._fetches, dict(zip(self._places, arrays, strict=True)))


def _check_size(sent: Outfeed, topology: BatchTopology) -> None:
    total = topology.replicas * sum(
        each.shape.num_elements() * each.dtype.size for each in sent.specs
    )
    if total >= _MOST_BYTES:
        raise InvalidSetting(
            f"predictions of one batch are {total:,} bytes, and the transfer size is larger than "
            f"the protobuf limit of {_MOST_BYTES:,}. Use a smaller predict_batch_size, or predict "
            f"less per row."
        )
