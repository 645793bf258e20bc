"""Prediction on a TPU: the replicas send predictions to the host, which removes the padding."""

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.backends.base import PredictGraph
from trainer.backends.tpu.mode_context import TpuModeContext
from trainer.backends.tpu.replicated_step import ReplicatedStep
from trainer.backends.tpu.step.host_parts import HostCallPart, PredictionsPart
from trainer.backends.tpu.transfer.outfeed import Outfeed
from trainer.backends.tpu.transfer.outfeed_results import PaddedOutfeedReceiver
from trainer.checkpoints import warm_start
from trainer.distribution.topology import BatchTopology
from trainer.infeed.final_batch_padding import PadFinalBatch
from trainer.model.model_program import TPUModelProgram
from trainer.model.spec import EstimatorSpec, ModeKeys, TPUEstimatorSpec

# The predictions of all replicas for one batch must have fewer bytes than this limit, because the
# TPU runtime cannot transfer larger messages to the host.
_MAX_TRANSFER_BYTES = 2**30


def build_predict_graph(
    program: TPUModelProgram,
    input_fn: Callable[..., Any],
    checkpoint: str | None,
    select: Callable[[Any], Any],
    context: TpuModeContext,
) -> PredictGraph:
    """Build the graph that predicts with a model on all replicas, in the default graph.

    Args:
      checkpoint: the checkpoint that the variables will be restored from; None for initial values.

    Raises:
      InvalidSetting: batch_axis is set, or the predictions are not a dict, have no static shape,
        or are too large.
    """
    if context.batch_axis is not None:
        raise InvalidSetting(
            f"batch_axis is {context.batch_axis}, and predictions come row by row: predict() on a "
            f"TPU splits the first axis. Use another estimator, without batch_axis."
        )
    predictions = PredictionsPart(select)
    step = ReplicatedStep(
        program, input_fn, context, [predictions, HostCallPart()], padding=PadFinalBatch()
    )
    done = step.build_loop()
    _check_transfer_size(step.outfeed, context.topology)
    warm_start.check_checkpoint_or_warm_start(checkpoint, program.warm_start)
    connected = step.connect(done, waits_for_results=True)
    receiver = connected.receiver
    assert isinstance(receiver, PaddedOutfeedReceiver)

    def read_batches(session: Any) -> Iterator[Any]:
        while not session.should_stop():
            predictions.batches.clear()
            # Make one step per session.run, whatever iterations_per_loop is.
            connected.infeed_outfeed_hook.send_next_batch_signal(1)
            session.run(connected.done.op, {step.iterations: 1})
            yield from list(predictions.batches)
            if receiver.is_at_end:
                return

    scaffold = None
    if isinstance(step.spec, TPUEstimatorSpec) and step.spec.scaffold_fn is not None:
        scaffold = step.spec.scaffold_fn()
    host_spec = EstimatorSpec(
        ModeKeys.PREDICT,
        predictions=tf.constant(0.0),
        scaffold=scaffold,
        prediction_hooks=step.spec.prediction_hooks,
    )
    return PredictGraph(read_batches, host_spec, (*connected.hooks, *connected.part_hooks))


def _check_transfer_size(outfeed: Outfeed, topology: BatchTopology) -> None:
    num_bytes = topology.replicas * sum(
        spec.shape.num_elements() * spec.dtype.size for spec in outfeed.specs
    )
    if num_bytes >= _MAX_TRANSFER_BYTES:
        raise InvalidSetting(
            f"The predictions of one batch are {num_bytes:,} bytes, and the transfer size is "
            f"larger than the protobuf limit of {_MAX_TRANSFER_BYTES:,}. Use a smaller "
            f"predict_batch_size, or predict less per row."
        )
