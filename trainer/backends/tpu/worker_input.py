"""Calls input_fn in the worker processes of a cluster that emulates the hosts of a TPU.

Only one process of the cluster, the leader, builds the graph and runs the session. Its session
places the input pipelines of the other hosts on the workers.
"""

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
    """Let input ops in this worker process call the Python functions of an input_fn.

    The cluster's leader, the process that runs the session, places these ops here.

    Args:
      hosts: the processes of the cluster.
      program: the user's model_fn and its settings.
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
