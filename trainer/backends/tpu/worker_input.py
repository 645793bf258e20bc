"""The input pipeline of a worker, in a cluster in which only the leader builds the model."""

from collections.abc import Callable
from typing import Any

from tpuserve import devices
from trainer.backends.tpu.cluster import python_functions
from trainer.backends.tpu.replica_program import make_replica_program
from trainer.backends.tpu.runtime.cluster import make_cluster_runtime
from trainer.config.cluster_hosts import ClusterHosts
from trainer.distribution.topology import BatchTopology
from trainer.model.model_program import TPUModelProgram


def serve_input(
    hosts: ClusterHosts, program: TPUModelProgram, mode: str, input_fn: Callable[..., Any]
) -> None:
    """Let ops that the leader places in this process call the Python code of an input_fn.

    Args:
      hosts: the processes of the cluster.
      program: the user's program.
      mode: one of `ModeKeys`.
      input_fn: the user's function that returns a Dataset, or tensors.
    """
    runtime = make_cluster_runtime(hosts, devices.find_tpu_system(), program.config)
    topology = BatchTopology(
        runtime.system, program.config.tpu_config, mode, program.batch_sizes.get(mode)
    )
    replica_program = make_replica_program(
        program, topology, runtime.device_assignment(topology, program.config)
    )
    python_functions.serve_functions(
        replica_program.pipeline_input(input_fn, mode), topology.pipelines
    )
