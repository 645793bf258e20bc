"""The ops of one host that feed the cores, once or many times in a `session.run`."""

import logging
from collections.abc import Callable
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


def enqueue_batch(
    source: InputSource,
    topology: BatchTopology,
    pipeline: Pipeline,
    *,
    parallel_get_next: bool,
    partition: InputPartition | None,
    device_assignment: Any,
) -> Any:
    """The op that feeds one batch to each replica of a pipeline.

    Args:
      source: the pipeline's batches.
      topology: which core is whose.
      pipeline: whom it feeds.
      parallel_get_next, device_assignment: see `trainer.infeed.build_infeed`.
      partition: how a shard is spread over a replica's cores; None for all to the first.
    """
    replicas = pipeline.replicas
    if topology.input_mode == InputPipelineConfig.PER_HOST_V2:
        fed = shards.per_replica_batches(source.next, len(replicas), in_order=not parallel_get_next)
    elif topology.input_mode == InputPipelineConfig.BROADCAST:
        fed = [source.next()] * len(replicas)
    else:
        fed = source.split()
    return tf.group(
        *(
            _to_core(part, topology, replica, core, device_assignment)
            for replica, tensors in zip(replicas, fed, strict=True)
            for core, part in enumerate(partition.parts(tensors) if partition else [tensors])
            if part
        )
    )


def _to_core(
    part: list[Any], topology: BatchTopology, replica: int, core: int, device_assignment: Any
) -> Any:
    host = topology.host_of(replica)
    if device_assignment is not None:
        coordinates = device_assignment.coordinates(replica, core)
        host = device_assignment.topology.task_ordinal_at_coordinates(coordinates)
    with tf.device(topology.host_device(host)):
        return tpu_ops.infeed_enqueue_tuple(
            inputs=part,
            shapes=[each.shape for each in part],
            device_ordinal=topology.ordinal_of(replica, core),
            name=f"enqueue_{replica}" if core == 0 else f"enqueue_{replica}_core_{core}",
        )


def repeat_batches(build_once: Callable[[], Any], iterations: Any) -> Any:
    """The op that runs `iterations` times, one after the other, what a function builds."""

    def body(done: Any) -> Any:
        with tf.control_dependencies([build_once()]):
            return done + 1

    done = while_v2.while_loop(
        lambda done: done < iterations,
        body,
        [tf.constant(0)],
        # Batches would overtake each other.
        parallel_iterations=1,
        name="batches",
    )
    return tf.group(done)


def repeat_existing_batch(once: Any, iterations: Any) -> tuple[Any, int | None]:
    """The same for ops that are there already, with the most iterations that it can make."""
    nodes = reachability.reachable_ops([once])
    obstacle = train_loop.why_not_unrollable(nodes)
    if obstacle is not None:
        logger.warning("one batch of the input a session.run: %s", obstacle)
        return once, 1
    return train_loop.run_unrolled(nodes, once, iterations), None
