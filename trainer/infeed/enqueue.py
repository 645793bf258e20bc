"""The ops with which one host feeds its cores, once or many times in a `session.run`."""

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from tpuserve.graph import reachability
from trainer.config.run_config import InputPipelineConfig
from trainer.distribution.topology import BatchTopology, Pipeline
from trainer.execution import train_loop
from trainer.infeed import shards
from trainer.infeed.input_source import InputSource
from trainer.infeed.partition import InputPartition
from trainer.tensorflow_internals import tpu_ops, while_v2

logger = logging.getLogger("tensorflow.trainer")

ExtraEnqueue: TypeAlias = Callable[[Any, Any, int], Any]
"""Takes a shard's features and labels and the number of the replica that receives the shard.

Returns an op that runs whenever a shard is fed to the replica, or None.
"""


def enqueue_batch(
    source: InputSource,
    topology: BatchTopology,
    pipeline: Pipeline,
    *,
    parallel_get_next: bool,
    partition: InputPartition | None,
    device_assignment: Any,
    extra_enqueues: Sequence[ExtraEnqueue] = (),
) -> Any:
    """Build the op that feeds one batch to each replica of a pipeline.

    Args:
      source: provides the pipeline's batches.
      topology: determines which cores belong to which replica.
      pipeline: determines which replicas to feed.
      parallel_get_next: see `trainer.infeed.build_infeed`.
      partition: how a shard is divided among the cores of a replica; None feeds the whole shard to
        the first core.
      device_assignment: see `trainer.infeed.build_infeed`.
      extra_enqueues: see `trainer.infeed.build_infeed`.
    """
    replicas = pipeline.replicas
    if topology.input_mode == InputPipelineConfig.PER_HOST_V2:
        replica_shards = shards.per_replica_batches(
            source.next_batch, len(replicas), in_order=not parallel_get_next
        )
        replica_shards = shards.pad_to_common_sizes(replica_shards, source.nest.leaves)
    elif topology.input_mode == InputPipelineConfig.BROADCAST:
        replica_shards = [source.next_batch()] * len(replicas)
    else:
        replica_shards = source.next_shards()
    operations = []
    for replica, tensors in zip(replicas, replica_shards, strict=True):
        core_parts = partition.split(tensors) if partition else [tensors]
        operations += [
            _enqueue_on_core(part, topology, replica, core, device_assignment)
            for core, part in enumerate(core_parts)
            if part
        ]
        features, labels = source.nest.pack(tensors[: len(source.nest.leaves)])
        with tf.device(topology.host_device(topology.host_of(replica))):
            extra_operations = [build(features, labels, replica) for build in extra_enqueues]
        operations += [operation for operation in extra_operations if operation is not None]
    return tf.group(*operations)


def _enqueue_on_core(
    part: list[Any], topology: BatchTopology, replica: int, core: int, device_assignment: Any
) -> Any:
    host = topology.host_of(replica)
    if device_assignment is not None:
        coordinates = device_assignment.coordinates(replica, core)
        host = device_assignment.topology.task_ordinal_at_coordinates(coordinates)
    with tf.device(topology.host_device(host)):
        return tpu_ops.infeed_enqueue_tuple(
            inputs=part,
            shapes=[tensor.shape for tensor in part],
            device_ordinal=topology.ordinal_of(replica, core),
            name=f"enqueue_{replica}" if core == 0 else f"enqueue_{replica}_core_{core}",
        )


def repeat_batches(build_once: Callable[[], Any], iterations: Any) -> Any:
    """Build the op that runs the op of `build_once` several times in sequence.

    Args:
      build_once: builds the op that feeds one batch.
      iterations: int32 []: the number of batches.
    """

    def body(done: Any) -> Any:
        with tf.control_dependencies([build_once()]):
            return done + 1

    done = while_v2.while_loop(
        lambda done: done < iterations,
        body,
        [tf.constant(0)],
        # Run one iteration at a time. With parallel iterations, batches would overtake each other.
        parallel_iterations=1,
        name="batches",
    )
    return tf.group(done)


def repeat_existing_batch(enqueue_once: Any, iterations: Any) -> tuple[Any, int | None]:
    """Build the op that runs copies of an op of the default graph, to feed several batches.

    Args:
      enqueue_once: the op that feeds one batch.
      iterations: int32 []: the number of batches.

    Returns:
      The op, and the largest number of iterations that the op supports; None for no limit.
    """
    nodes = reachability.reachable_ops([enqueue_once])
    obstacle = train_loop.why_not_unrollable(nodes)
    if obstacle is not None:
        logger.warning("each session.run feeds one batch only: %s", obstacle)
        return enqueue_once, 1
    return train_loop.run_unrolled(nodes, enqueue_once, iterations), None
