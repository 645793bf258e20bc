"""From an input_fn to ops that feed every core, and to the batch that each replica computes on."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.distribution.topology import BatchTopology, Pipeline
from trainer.hooks.training_hooks import DatasetInitializerHook
from trainer.infeed import enqueue, input_source, partition, shards
from trainer.infeed import tensor_nest as structure
from trainer.infeed.input_source import FinalBatchPolicy, InputSource
from trainer.infeed.partition import InputPartition
from trainer.infeed.tensor_nest import TensorNest
from trainer.tensorflow_internals import tpu_ops

IS_PADDING = "is_padding"


@dataclass(frozen=True)
class Batch:
    """What one replica computes on in one step.

    Attributes:
      features, labels: nested as input_fn gave them; labels are None where it gave none.
      mask: int32 [rows]: 1 for a real row, 0 for filler; None where there is no filler.
    """

    features: Any
    labels: Any
    mask: Any = None


@dataclass(frozen=True)
class Infeed:
    """The way of the batches, from the hosts to the cores.

    Attributes:
      iterations: int32 scalar, 1 if it is not fed: how many batches, each of all replicas, a
        run of `enqueue` feeds.
      enqueue: the op that feeds them. Hosts go on by themselves; it is done when all are.
        Input that is at its end raises tf.errors.OutOfRangeError.
      hooks: what must run before `enqueue` does: they start the Datasets.
      dequeue: builds, inside of the replicated computation, the op that takes a replica's next
        shard.
      structure: of one replica's shard, without the mask.
      max_iterations: the most that `iterations` may be; None for any number.
    """

    iterations: Any
    enqueue: Any
    hooks: tuple[Any, ...]
    dequeue: Callable[[], Batch]
    structure: TensorNest
    max_iterations: int | None = None


def build_infeed(
    call_input_fn: Callable[[Pipeline], Any],
    topology: BatchTopology,
    *,
    batch_axis: Any = None,
    smaller_batches: FinalBatchPolicy = "refuse",
    steps: int | None = None,
    parallel_get_next: bool = False,
    input_partition_dims: Any = None,
    device_assignment: Any = None,
    only_first_core_computes: bool = False,
) -> Infeed:
    """Feeds what input_fn gives to all cores, in the default graph.

    Args:
      call_input_fn: called once for each input pipeline, on its host's device: a Dataset, or
        tensors, of features or (features, labels).
      topology: who is fed by which pipeline, and how.
      batch_axis: the axis of each tensor that PER_HOST_V1 splits; None for the first. Other
        modes do not look at it.
      smaller_batches: what becomes of a batch of fewer rows than params['batch_size']. "refuse"
        demands static shapes. "pad" fills it up; features['is_padding'], int32 [rows], has 1 for
        filler if features is a dict without that key. "tile" makes several of it, with at most
        one real row for each replica, so that means over rows stay right. With the last two,
        batches follow the end of a Dataset for ever whose mask is 0 on every replica.
      steps: with "pad" and "tile", how many batches of all replicas to take from the Datasets.
      parallel_get_next: PER_HOST_V2 need not give the first batch to the first replica; with
        "pad" it does so all the same.
      input_partition_dims: see TPUConfig.
      device_assignment: where the logical cores of a replica are, if a replica can have cores on
        several hosts; else they are on the host of its first one.
      only_first_core_computes: feeds whole tensors to the first logical core, whatever
        input_partition_dims say; they are only checked.

    Raises:
      InvalidType: input_fn gave what is no tensor, or none that a TPU takes.
      InvalidSetting: a batch without static shape, or that cannot be split as asked.
    """
    iterations = tf.compat.v1.placeholder_with_default(1, [], name="infeed_iterations")
    batch_axis = shards.effective_batch_axis(topology.input_mode, batch_axis)
    first: InputSource | None = None
    spread: InputPartition | None = None
    loops, initializers, limits = [], [], []
    for pipeline in topology.pipelines:
        with tf.name_scope(f"input_pipeline_task{pipeline.host}"), tf.device(pipeline.device):
            found = input_source.build_input_source(
                call_input_fn(pipeline),
                topology,
                len(pipeline.replicas),
                batch_axis=batch_axis,
                smaller_batches=smaller_batches,
                steps=steps,
            )
            if first is None:
                first = found
                spread = _spread(found, topology, input_partition_dims, only_first_core_computes)
            call = f"call {pipeline.index + 1} of input_fn, on host {pipeline.host},"
            structure.check_same_tensors(first.structure, found.structure, call)
            feed_once = partial(
                enqueue.enqueue_batch,
                found,
                topology,
                pipeline,
                # Predictions come in the order of the input.
                parallel_get_next=parallel_get_next and smaller_batches != "pad",
                partition=spread,
                device_assignment=device_assignment,
            )
            if found.initializer is None:
                loop, limit = enqueue.repeat_existing_batch(feed_once(), iterations)
                limits += [] if limit is None else [limit]
            else:
                loop = enqueue.repeat_batches(feed_once, iterations)
                initializers.append(found.initializer)
            loops.append(loop)
    if first is None:
        raise InvalidSetting("the topology has no input pipeline, so there is nothing to feed.")
    return Infeed(
        iterations,
        enqueue=tf.group(*loops, name="infeed"),
        hooks=(DatasetInitializerHook(tf.group(*initializers)),) if initializers else (),
        dequeue=partial(_dequeue, first, spread, says_padding=smaller_batches == "pad"),
        structure=first.shard(),
        max_iterations=min(limits, default=None),
    )


def _spread(
    found: InputSource,
    topology: BatchTopology,
    input_partition_dims: Any,
    only_first_core_computes: bool,
) -> InputPartition | None:
    if input_partition_dims is None:
        return None
    checked = partition.build_partition(
        input_partition_dims, found.shard(), topology.cores_per_replica
    )
    return None if only_first_core_computes else checked


def _dequeue(found: InputSource, spread: InputPartition | None, *, says_padding: bool) -> Batch:
    shard = found.shard()
    specs = [each.spec for each in shard.leaves]
    if found.rows is not None:
        specs.append(tf.TensorSpec([found.rows // found.shards], tf.int32))
    with tf.device(tf.compat.v1.tpu.core(0)):
        tensors = tpu_ops.infeed_dequeue_tuple(
            dtypes=[each.dtype for each in specs],
            shapes=[each.shape for each in specs],
            name="dequeue",
        )
    if spread is not None:
        tensors = spread.tag(tensors)
    if found.rows is None:
        return Batch(*shard.pack(tensors))
    *tensors, mask = tensors
    features, labels = shard.pack(tensors)
    if says_padding and isinstance(features, dict) and IS_PADDING not in features:
        features = {**features, IS_PADDING: 1 - mask}
    return Batch(features, labels, mask)
