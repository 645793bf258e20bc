"""The runtime of an emulated TPU: the graph of a TPU computation runs on this machine's CPU.

For this purpose, ops with CPU kernels replace the ops that only a TPU can run.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tpuserve.lowering.live_graph import lower_in_place
from trainer.backends.tpu.runtime.base import PreparedTargets, TpuRuntime
from trainer.config.run_config import RunConfig
from trainer.distribution.topology import BatchTopology, EmulatedTpuSlice
from trainer.tensorflow_internals import Topology, device_assignment


@dataclass(frozen=True)
class EmulatedRuntime(TpuRuntime):
    """An emulated TPU system in this process."""

    system: EmulatedTpuSlice
    is_compiled: bool = True
    requested_by: str = ""
    master: str = ""
    only_first_core_computes: bool = True

    def assign_cores(self, topology: BatchTopology, config: RunConfig) -> Any:
        """Return a DeviceAssignment that gives each replica consecutive cores."""
        return assign_consecutive_cores(topology)

    def prepare_targets(self, targets: Sequence[Any], topology: BatchTopology) -> PreparedTargets:
        """Copy the targets and all ops that they need, with CPU ops in place of TPU ops."""
        lowered = lower_in_place(targets, compiled=self.is_compiled)
        return PreparedTargets(lowered.targets, lowered.end_infeeds, lowered.end_outfeeds)

    def session_config(self, proto: Any) -> Any:
        """Return a ConfigProto that lets TensorFlow assign devices only to the ops that run."""
        return place_only_running_ops(proto)

    @contextmanager
    def initialized_system(self, topology: BatchTopology, config: RunConfig) -> Iterator[None]:
        """Return a context that does nothing: an emulated TPU needs no initialisation."""
        yield

    def preemption_hooks(self, config: RunConfig) -> tuple[Any, ...]:
        """Return no hooks: an emulated TPU cannot be lost."""
        return ()

    def describe(self) -> str:
        """Return a remark for the log: what requested the emulation, and whether XLA compiles."""
        compiled = "compiled by XLA" if self.is_compiled else "not compiled"
        return f" (requested by {self.requested_by}), {compiled}"


def assign_consecutive_cores(topology: BatchTopology) -> Any:
    """Return a DeviceAssignment that gives each replica consecutive cores.

    The topology of the cores is a mesh with one row: core i has the coordinates [i, 0, 0, 0].
    """
    per_replica = topology.cores_per_replica
    cores = topology.system.cores
    mesh = Topology(
        mesh_shape=[cores, 1, 1, 1],
        device_coordinates=np.array([[[core, 0, 0, 0] for core in range(cores)]], dtype=np.int32),
    )
    numbers = np.arange(topology.replicas * per_replica, dtype=np.int32)
    coordinates = np.zeros([topology.replicas, per_replica, 4], np.int32)
    coordinates[..., 0] = numbers.reshape(topology.replicas, per_replica)
    return device_assignment.DeviceAssignment(mesh, coordinates)


def place_only_running_ops(proto: Any) -> Any:
    """Return a copy of a ConfigProto that lets TensorFlow assign devices only to the ops that run.

    The graph of an emulated TPU still has the original TPU ops, although only their replacements by
    CPU ops run.
    """
    session_config = tf.compat.v1.ConfigProto()
    session_config.CopyFrom(proto)
    session_config.graph_options.place_pruned_graph = True
    return session_config
