"""Builds the ops that feed a host's cores, once or many times in a `session.run`."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

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


def enqueue_together(
    sources: Sequence[tuple[InputSource, Pipeline]],
    topology: BatchTopology,
    *,
    parallel_get_next: bool,
    partition: InputPartition | None,
    device_assignment: Any,
) -> Any:
    """Build the op that feeds one batch to each replica of one or more input pipelines.

    A tensor whose number of columns differs between replicas is padded to the largest number.

    Args:
      parallel_get_next: whether replicas may take their batches in any order under PER_HOST_V2.
      partition: how a replica's tensors are divided among its cores; None feeds the whole tensors
        to the first core.
      device_assignment: a DeviceAssignment, needed if the cores of one replica are on several
        hosts; None if they are all on the host of the replica's first core.
    """
    batches = take_shards(sources, topology, parallel_get_next)
    nest = sources[0][0].nest
    remaining = iter(shards.pad_to_common_sizes(batches, nest.leaves))
    operations = []
    for _, pipeline in sources:
        with tf.device(pipeline.device):
            operations.append(
                _enqueue_shards(
                    [next(remaining) for _ in pipeline.replicas],
                    topology,
                    pipeline,
                    partition,
                    device_assignment,
                )
            )
    return tf.group(*operations)


def take_shards(
    sources: Sequence[tuple[InputSource, Pipeline]],
    topology: BatchTopology,
    parallel_get_next: bool,
) -> list[list[Any]]:
    """Build the ops that take the next batch of each pipeline."""
    batches: list[list[Any]] = []
    for source, pipeline in sources:
        count = len(pipeline.replicas)
        with tf.device(pipeline.device):
            if topology.input_mode == InputPipelineConfig.PER_HOST_V2:
                batches += shards.per_replica_batches(
                    source.next_batch, count, in_order=not parallel_get_next
                )
            elif topology.input_mode == InputPipelineConfig.BROADCAST:
                batches += [source.next_batch()] * count
            else:
                batches += source.next_shards()
    return batches


def _enqueue_shards(
    replica_shards: Sequence[list[Any]],
    topology: BatchTopology,
    pipeline: Pipeline,
    partition: InputPartition | None,
    device_assignment: Any,
) -> Any:
    operations = []
    for replica, tensors in zip(pipeline.replicas, replica_shards, strict=True):
        core_parts = partition.split(tensors) if partition else [tensors]
        operations += [
            _enqueue_on_core(part, topology, replica, core, device_assignment)
            for core, part in enumerate(core_parts)
            if part
        ]
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
    """Build a loop that feeds several batches of a Dataset in sequence.

    Args:
      iterations: int32 []: the number of batches.
    """

    def body(done: Any) -> Any:
        with tf.control_dependencies([build_once()]):
            return done + 1

    done = while_v2.while_loop(
        lambda done: done < iterations,
        body,
        [tf.constant(0)],
        # Run one iteration at a time. With parallel iterations, batches could be enqueued in
        # another order.
        parallel_iterations=1,
        name="batches",
    )
    return tf.group(done)


def repeat_existing_batch(enqueue_once: Any, iterations: Any) -> tuple[Any, int | None]:
    """Build a loop that feeds several batches of an input_fn that returned tensors.

    The tensors are in the graph already, so the loop runs copies of the ops that compute and feed
    one batch.

    Args:
      enqueue_once: the op of the default graph that feeds one batch.

    Returns:
      The op, and the largest number of iterations that the op supports; None for no limit.
    """
    nodes = reachability.reachable_ops([enqueue_once])
    obstacle = train_loop.why_not_unrollable(nodes)
    if obstacle is not None:
        logger.warning("each session.run feeds one batch only: %s", obstacle)
        return enqueue_once, 1
    return train_loop.run_unrolled(nodes, enqueue_once, iterations), None
