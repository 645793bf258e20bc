"""Runs an infeed without a TPU: a FIFOQueue stands for the infeed queue of each core."""

import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainer import infeed
from trainer.config.run_config import InputPipelineConfig, TPUConfig
from trainer.distribution.topology import BatchTopology, TpuSlice

v1 = tf.compat.v1


def topology(
    hosts: int, cores: int, mode: Any, batch_size: int, cores_per_replica: int | None = None
) -> BatchTopology:
    """Return the topology of a system of worker processes.

    Args:
      hosts: number of hosts.
      cores: number of cores of each host.
      mode: one of InputPipelineConfig.
      batch_size: global batch size.
      cores_per_replica: see TPUConfig.
    """
    system = TpuSlice(hosts, hosts * cores, job="tpu_worker")
    if mode == InputPipelineConfig.SLICED:
        return BatchTopology(
            system, TPUConfig(eval_training_input_configuration=mode), "eval", batch_size
        )
    config = TPUConfig(num_cores_per_replica=cores_per_replica, per_host_input_for_training=mode)
    return BatchTopology(system, config, "train", batch_size)


def dequeue_batches(
    input_fn: Callable[..., Any], topology: BatchTopology, *runs: int, **options: Any
) -> list[list[infeed.ReplicaBatch]]:
    """Return the batches that each replica dequeues.

    Args:
      input_fn: takes the pipeline and returns a Dataset or tensors.
      topology: tells which replicas to feed.
      runs: iterations of each run of `enqueue`; by default one run of one batch.
      options: keyword arguments of `infeed.build_infeed`.
    """
    with tf.Graph().as_default() as graph:
        built = infeed.build_infeed(input_fn, topology, **options)
        batches = []
        for replica in range(topology.replicas):
            with tf.name_scope(f"replica_{replica}"):
                batches.append(built.dequeue())
    parts = [(batch.features, batch.labels, batch.mask) for batch in batches]
    names = tf.nest.map_structure(lambda tensor: None if tensor is None else tensor.name, parts)
    with session(graph, topology) as run:
        for hook in built.hooks:
            run.run(hook.initializer.name)
        for iterations in runs or (1,):
            run.run(built.enqueue.name, {built.iterations.name: iterations})
        return [
            [infeed.ReplicaBatch(*_run_tensors(run, name)) for _ in range(sum(runs) or 1)]
            for name in names
        ]


def _run_tensors(run: Any, names: Any) -> Any:
    values = iter(run.run([name for name in tf.nest.flatten(names) if name is not None]))
    flat = [None if name is None else next(values).tolist() for name in tf.nest.flatten(names)]
    return tf.nest.pack_sequence_as(names, flat)


def session(graph: Any, topology: BatchTopology) -> Any:
    """Return a session of a copy of a graph in which queues replace the infeed ops.

    A dequeue op in the name scope "replica_1" takes from the queue of replica 1's first core, and
    one in "replica_1_core_2" from that of its logical core 2. All cores of a replica are on the
    host of its first core.
    """
    definition = graph.as_graph_def()
    for node in definition.node:
        if node.op == "InfeedDequeueTuple":
            replica, *core = map(int, re.findall(r"\d+", node.name.split("/")[0]))
            device = topology.host_device(topology.host_of(replica))
            node.attr["device_ordinal"].i = topology.ordinal_of(replica, *core)
            node.device = tf.DeviceSpec.from_string(device).to_string()
    _put_queues(definition.node, "")
    for function in definition.library.function:
        _put_queues(function.node_def, "handle:")
    with tf.Graph().as_default() as lowered:
        tf.graph_util.import_graph_def(definition, name="")
    return v1.Session(graph=lowered)


def _put_queues(nodes: Any, output: str) -> None:
    for node in list(nodes):
        device, node.device = node.device, ""
        node.attr.pop("_class", None)
        if node.op not in ("InfeedEnqueueTuple", "InfeedDequeueTuple"):
            continue
        queue = nodes.add(name=f"{node.name}/queue", op="FIFOQueueV2")
        queue.attr["component_types"].CopyFrom(node.attr["dtypes"])
        queue.attr["shapes"].CopyFrom(node.attr["shapes"])
        queue.attr["capacity"].i = 100
        ordinal = node.attr["device_ordinal"].i
        queue.attr["shared_name"].s = f"{device}, core {ordinal}".encode()
        node.op, types = {
            "InfeedEnqueueTuple": ("QueueEnqueueV2", "Tcomponents"),
            "InfeedDequeueTuple": ("QueueDequeueV2", "component_types"),
        }[node.op]
        inputs = [f"{queue.name}:{output}0", *node.input]
        del node.input[:]
        node.input.extend(inputs)
        node.attr.clear()
        node.attr[types].CopyFrom(queue.attr["component_types"])
