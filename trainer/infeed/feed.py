"""Builds the ops that feed the batches of an input_fn to the cores, and that dequeue them there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.config.run_config import InputPipelineConfig
from trainer.distribution.topology import BatchTopology, Pipeline
from trainer.hooks.training_hooks import DatasetInitializerHook
from trainer.infeed import enqueue, input_source, narrowing, partition, shards, tensor_nest
from trainer.infeed.final_batch_padding import FinalBatchPadding, RefusePartialBatches
from trainer.infeed.input_source import InputSource
from trainer.infeed.partition import InputPartition
from trainer.infeed.tensor_nest import TensorNest
from trainer.tensorflow_internals import tpu_ops

IS_PADDING = "is_padding"


@dataclass(frozen=True)
class ReplicaBatch:
    """The input of one replica in one step.

    Attributes:
      labels: the tensors of the labels, nested as input_fn returned them; None without labels.
      mask: int32 [batch]: 1 for a real example, 0 for padding; None if no example can be padding.
    """

    features: Any
    labels: Any
    mask: Any = None


@dataclass(frozen=True)
class Infeed:
    """The transfer of batches from the hosts to the cores.

    Attributes:
      iterations: int32 placeholder [], 1 by default: the number of global batches that one run
        of `enqueue` feeds.
      enqueue: the op that feeds the batches.
      hooks: SessionRunHooks that start the Datasets before the first run of `enqueue`.
      dequeue: builds, inside the replicated computation, the op that takes the next batch of a
        replica from the infeed; returns the batch.
      shard_nest: describes the tensors of one replica's part of a batch, but not the mask, a tensor
        that marks which examples are real and which are padding.
      max_iterations: the largest allowed value of `iterations`; None for no limit.
      has_full_batches: whether the examples of one replica in one step are either all real or all
        padding.
    """

    iterations: Any
    enqueue: Any
    hooks: tuple[Any, ...]
    dequeue: Callable[[], ReplicaBatch]
    nest: TensorNest
    shard_nest: TensorNest
    max_iterations: int | None = None
    has_full_batches: bool = False
    has_only_full_steps: bool = False


def build_infeed(
    call_input_fn: Callable[[Pipeline], Any],
    topology: BatchTopology,
    *,
    batch_axis: Any = None,
    padding: FinalBatchPadding | None = None,
    steps: int | None = None,
    parallel_get_next: bool = False,
    input_partition_dims: Any = None,
    device_assignment: Any = None,
    only_first_core_computes: bool = False,
    has_infeed: bool = True,
) -> Infeed:
    """Build, in the default graph, the ops that feed the input of all cores.

    Args:
      call_input_fn: called once for each input pipeline, on the device of the pipeline's host;
        returns a Dataset, or tensors, of features or (features, labels).
      batch_axis: for each tensor the axis that PER_HOST_V1 splits; None for the first axis. Other
        input modes ignore this argument.
      padding: the policy for batches with fewer examples than params['batch_size']; None refuses
        such batches.
      steps: with a policy that pads, the number of global batches to take from the Datasets; None
        for all.
      parallel_get_next: whether replicas may take their batches in any order under PER_HOST_V2.
        Ignored if the policy keeps the order of examples.
      device_assignment: a DeviceAssignment, needed if the cores of one replica are on several
        hosts; None if they are all on the host of the replica's first core.

    Raises:
      InvalidType: input_fn returned a value that is not a tensor, or a tensor that a TPU does not
        support.
      InvalidSetting: a batch has no static shape, or cannot be split as requested.
    """
    padding = padding or RefusePartialBatches()
    batch_axis = shards.effective_batch_axis(topology.input_mode, batch_axis)
    sources: list[tuple[InputSource, Pipeline]] = []
    for pipeline in topology.local_pipelines:
        with tf.name_scope(f"input_pipeline_task{pipeline.host}"), tf.device(pipeline.device):
            source = input_source.build_input_source(
                call_input_fn(pipeline),
                topology,
                len(pipeline.replicas),
                batch_axis=batch_axis,
                padding=padding,
                steps=steps,
            )
        sources.append((source, pipeline))
        call = f"call {pipeline.index + 1} of input_fn, on host {pipeline.host},"
        tensor_nest.check_same_tensors(sources[0][0].nest, source.nest, call)
    if not sources:
        raise InvalidSetting("The topology has no input pipeline, so there is nothing to feed.")
    first, _ = sources[0]
    core_partition = _build_core_partition(
        first, topology, input_partition_dims, only_first_core_computes
    )
    iterations = tf.compat.v1.placeholder_with_default(1, [], name="infeed_iterations")
    parallel_get_next = parallel_get_next and not padding.keeps_row_order
    limits: list[int] = []
    if has_infeed:
        loops, limits = _build_loops(
            sources,
            iterations,
            topology=topology,
            parallel_get_next=parallel_get_next,
            partition=core_partition,
            device_assignment=device_assignment,
        )
        feed = tf.group(*loops, name="infeed")
    else:
        feed = enqueue.take_shards(sources, topology, parallel_get_next)
    initializers = [source.initializer for source, _ in sources if source.initializer is not None]
    may_be_partial = any(source.may_be_partial for source, _ in sources)
    return Infeed(
        iterations,
        enqueue=feed,
        hooks=(DatasetInitializerHook(tf.group(*initializers)),) if initializers else (),
        dequeue=partial(
            _dequeue,
            first,
            core_partition,
            adds_padding_feature=padding.adds_padding_feature,
        ),
        nest=first.nest,
        shard_nest=first.shard_nest(),
        max_iterations=min(limits, default=None),
        has_full_batches=not may_be_partial,
        has_only_full_steps=not may_be_partial and _has_only_full_steps(topology),
    )


def _build_loops(
    sources: Sequence[tuple[InputSource, Pipeline]], iterations: Any, **options: Any
) -> tuple[list[Any], list[int]]:
    """Build the ops that feed `iterations` batches of each input pipeline."""
    loops, limits = [], []
    # The pipelines with tensors whose sizes vary from batch to batch. One loop feeds the batches of
    # all of them, so that it can pad the tensors of all replicas to equal sizes.
    together: list[tuple[InputSource, Pipeline]] = []
    for source, pipeline in sources:
        if source.initializer is not None and sources[0][0].nest.has_varying_sizes:
            together.append((source, pipeline))
            continue
        with tf.name_scope(f"enqueue_task{pipeline.host}"), tf.device(pipeline.device):
            enqueue_once = partial(enqueue.enqueue_together, [(source, pipeline)], **options)
            if source.initializer is None:
                loop, limit = enqueue.repeat_existing_batch(enqueue_once(), iterations)
                limits += [] if limit is None else [limit]
            else:
                loop = enqueue.repeat_batches(enqueue_once, iterations)
        loops.append(loop)
    if together:
        enqueue_once = partial(enqueue.enqueue_together, together, **options)
        loops.append(enqueue.repeat_batches(enqueue_once, iterations))
    return loops, limits


def _has_only_full_steps(topology: BatchTopology) -> bool:
    if len(topology.pipelines) > 1:
        # One pipeline may have one more batch than another pipeline. In the step with this batch,
        # the examples of the other pipeline are padding.
        return False
    # If each replica takes its own batches from the pipeline, one replica may get one more batch
    # than another replica.
    takes_own_batches = topology.input_mode == InputPipelineConfig.PER_HOST_V2
    return not takes_own_batches or topology.replicas == 1


def _build_core_partition(
    source: InputSource,
    topology: BatchTopology,
    input_partition_dims: Any,
    only_first_core_computes: bool,
) -> InputPartition | None:
    if input_partition_dims is None:
        return None
    checked = partition.build_partition(
        input_partition_dims, source.shard_nest(), topology.cores_per_replica
    )
    return None if only_first_core_computes else checked


def _dequeue(
    source: InputSource, core_partition: InputPartition | None, *, adds_padding_feature: bool
) -> ReplicaBatch:
    shard = source.shard_nest()
    specs = [leaf.spec for leaf in shard.leaves]
    if source.rows is not None:
        specs.append(tf.TensorSpec([source.rows // source.shards], tf.int32))
    with tf.device(tf.compat.v1.tpu.core(0)):
        tensors = tpu_ops.infeed_dequeue_tuple(
            dtypes=[narrowing.fed_dtype(spec.dtype) for spec in specs],
            shapes=[spec.shape for spec in specs],
            name="dequeue",
        )
    if core_partition is not None:
        tensors = core_partition.tag_sharding(tensors)
    tensors = narrowing.widen(tensors, shard.leaves)
    if source.rows is None:
        return ReplicaBatch(*shard.pack(tensors))
    *tensors, mask = tensors
    features, labels = shard.pack(tensors)
    if adds_padding_feature and isinstance(features, dict) and IS_PADDING not in features:
        features = {**features, IS_PADDING: 1 - mask}
    return ReplicaBatch(features, labels, mask)
