"""The TPU system that a run uses: found, initialised once, and shut down."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.tpu import device_assignment as device_assignments
from tensorflow.python.tpu import topology as topologies

from tpuserve import devices
from tpuserve.errors import TpuNotFound
from trainer.config import RunConfig
from trainer.spec import ModeKeys
from trainer.topology import System, Topology

logger = logging.getLogger("tensorflow.trainer")

_initialising = threading.Lock()
# Master → its topology: a system is initialised once in a process.
_initialised: dict[str, bytes] = {}

# Cores of one replica as a box of (x, y, z, core) in the mesh.
# Source: the shapes that TPUEstimator's documentation gives for num_cores_per_replica.
_BOXES = {
    1: [1, 1, 1, 1],
    2: [1, 1, 1, 2],
    4: [1, 2, 1, 2],
    8: [2, 2, 1, 2],
    16: [4, 2, 1, 2],
    32: [4, 4, 1, 2],
    64: [8, 4, 1, 2],
    128: [8, 8, 1, 2],
}


@dataclass(frozen=True)
class Device:
    """Where a run's replicas are.

    Attributes:
      system: its size.
      master: the session target.
      is_compiled: see `tpuserve.devices.Hardware`.
    """

    system: System
    master: str = ""
    is_compiled: bool = True

    @property
    def is_emulated(self) -> bool:
        """Whether graphs must be lowered."""
        return self.system.is_emulated


def find(config: RunConfig, mode: str) -> Device:
    """The TPU system of a run: an emulated one if that was asked for, else the master's.

    Raises:
      TpuNotFound: there is none.
    """
    hardware = devices.find_hardware()
    if hardware.is_emulated:
        system = System(hardware.hosts, hardware.tpu_cores, is_emulated=True)
        is_compiled = hardware.is_compiled and config.tpu_config.compile_emulated
        return Device(system, is_compiled=is_compiled)
    master = config.evaluation_master if mode == ModeKeys.EVAL else config.master
    if master or hardware.has_tpu:
        return Device(_ask(master or "", config, mode), master or "")
    raise TpuNotFound(
        f"use_tpu=True: {hardware}, and RunConfig names no master or cluster that has one. Pass "
        f"use_tpu=False to run on the CPU or a GPU, or emulate a TPU: "
        f"{devices.EMULATION_VARIABLE}=8, or tpuserve.emulated_tpu(cores=8)."
    )


def say(topology: Topology, device: Device) -> None:
    """Logs what was chosen, from what."""
    how = ""
    if device.is_emulated:
        how = ", compiled by XLA" if device.is_compiled else ", not compiled"
    logger.info(
        "%s on %s%s: %d replicas, %d rows each (global batch %s), input %s",
        topology.mode,
        topology.system,
        how,
        topology.replicas,
        topology.batch_size_for_model_fn,
        topology.global_batch_size,
        getattr(topology.input_mode, "name", topology.input_mode),
    )
    if device.is_emulated and topology.cores_per_replica > 1:
        logger.info(
            "each replica works on the first of its %d emulated cores; the others stay idle",
            topology.cores_per_replica,
        )


def assignment(topology: Topology, device: Device, config: RunConfig) -> Any:
    """Which cores each replica has; None for one core each, in the order of their numbers."""
    if not topology.is_model_parallel:
        return None
    per_replica = topology.cores_per_replica
    if device.is_emulated:
        cores = topology.system.cores
        mesh = topologies.Topology(
            mesh_shape=[cores, 1, 1, 1],
            device_coordinates=np.array(
                [[[core, 0, 0, 0] for core in range(cores)]], dtype=np.int32
            ),
        )
        numbers = np.arange(topology.replicas * per_replica, dtype=np.int32)
        places = np.zeros([topology.replicas, per_replica, 4], np.int32)
        places[..., 0] = numbers.reshape(topology.replicas, per_replica)
        return device_assignments.DeviceAssignment(mesh, places)
    return device_assignments.device_assignment(
        topologies.Topology(serialized=_initialise(device, config, topology.system.job)),
        computation_shape=_BOXES[per_replica],
        num_replicas=topology.replicas,
    )


@contextmanager
def up(topology: Topology, device: Device, config: RunConfig) -> Iterator[None]:
    """The system initialised, until the block is left; an emulated one needs nothing."""
    if device.is_emulated:
        yield
        return
    _initialise(device, config, topology.system.job)
    try:
        yield
    finally:
        _shut_down(device, config, topology.system.job)


def _initialise(device: Device, config: RunConfig, job: str | None) -> bytes:
    with _initialising:
        if device.master not in _initialised:
            logger.info("initialising the TPU system of %s", device.master or "this machine")
            found = _run(device.master, config, lambda: tf.compat.v1.tpu.initialize_system(job=job))
            _initialised[device.master] = found
        return _initialised[device.master]


def _shut_down(device: Device, config: RunConfig, job: str | None) -> None:
    with _initialising:
        if _initialised.pop(device.master, None) is not None:
            _run(device.master, config, lambda: tf.compat.v1.tpu.shutdown_system(job=job))


def _run(master: str, config: RunConfig, build: Any) -> Any:
    with (
        tf.Graph().as_default(),
        tf.compat.v1.Session(master, config=config.session_config) as session,
    ):
        return session.run(build())


def _ask(master: str, config: RunConfig, mode: str) -> System:
    """What a master says about its system."""
    from tensorflow.python.tpu import tpu_system_metadata

    cluster = config.session_config.cluster_def if config.session_config is not None else None
    found = tpu_system_metadata._query_tpu_system_metadata(
        master, cluster_def=cluster, query_topology=False
    )
    job = config.tpu_job(mode) if master not in ("", "local") else None
    return System(hosts=found.num_hosts, cores=found.num_cores, job=job)
