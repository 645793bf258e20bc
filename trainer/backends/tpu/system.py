"""The TPU system that a run uses: found, initialised once, and shut down."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tpuserve import devices
from tpuserve.errors import TpuNotFound
from trainer.config.run_config import RunConfig
from trainer.distribution.topology import VERBS, BatchTopology, TpuSlice
from trainer.model.spec import ModeKeys
from trainer.tensorflow_internals import Topology, device_assignment, tpu_system_metadata

logger = logging.getLogger("tensorflow.trainer")


@dataclass
class _Initialised:
    """A system that is initialised.

    Attributes:
      topology: serialized.
      users: how many runs need it.
    """

    topology: bytes
    users: int = 0


_initialising = threading.Lock()
# By master: within one run there may be another, as an evaluation within training.
_initialised: dict[str, _Initialised] = {}

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
      is_compiled, asked_by: see `tpuserve.devices.TpuSystem`.
    """

    system: TpuSlice
    master: str = ""
    is_compiled: bool = True
    asked_by: str = ""

    @property
    def is_emulated(self) -> bool:
        """Whether graphs must be lowered."""
        return self.system.is_emulated


def find(config: RunConfig, mode: str) -> Device:
    """The TPU system of a run: an emulated one if that was asked for, else the master's.

    Raises:
      TpuNotFound: there is none.
    """
    hardware = devices.find_tpu_system()
    if hardware.is_emulated:
        system = TpuSlice(hardware.hosts, hardware.tpu_cores, is_emulated=True)
        is_compiled = hardware.is_compiled and config.tpu_config.compile_emulated
        return Device(system, is_compiled=is_compiled, asked_by=hardware.asked_by)
    master = config.evaluation_master if mode == ModeKeys.EVAL else config.master
    if master or hardware.has_tpu:
        return Device(_ask(master or "", config, mode), master or "")
    raise TpuNotFound(
        f"use_tpu=True: {hardware}, and RunConfig names no master or cluster that has one. Pass "
        f"use_tpu=False to run on the CPU or a GPU, or emulate a TPU: "
        f"{devices.EMULATION_VARIABLE}=8, or tpuserve.emulated_tpu(cores=8)."
    )


def say(topology: BatchTopology, device: Device) -> None:
    """Logs what was chosen, from what."""
    how = ""
    if device.is_emulated:
        compiled = "compiled by XLA" if device.is_compiled else "not compiled"
        how = f" (asked for by {device.asked_by}), {compiled}"
    logger.info(
        "%s on %s%s: %d replicas, %d rows each (global batch %s), input %s",
        VERBS[topology.mode],
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


def assignment(topology: BatchTopology, device: Device, config: RunConfig) -> Any:
    """Which cores each replica has; None for one core each, in the order of their numbers."""
    if not topology.is_model_parallel:
        return None
    per_replica = topology.cores_per_replica
    if device.is_emulated:
        cores = topology.system.cores
        mesh = Topology(
            mesh_shape=[cores, 1, 1, 1],
            device_coordinates=np.array(
                [[[core, 0, 0, 0] for core in range(cores)]], dtype=np.int32
            ),
        )
        numbers = np.arange(topology.replicas * per_replica, dtype=np.int32)
        places = np.zeros([topology.replicas, per_replica, 4], np.int32)
        places[..., 0] = numbers.reshape(topology.replicas, per_replica)
        return device_assignment.DeviceAssignment(mesh, places)
    return device_assignment.device_assignment(
        Topology(serialized=_initialise(device, config, topology.system.job)),
        computation_shape=_BOXES[per_replica],
        num_replicas=topology.replicas,
    )


@contextmanager
def up(topology: BatchTopology, device: Device, config: RunConfig) -> Iterator[None]:
    """The system initialised, until the last such block is left; an emulated one needs nothing."""
    if device.is_emulated:
        yield
        return
    _initialise(device, config, topology.system.job)
    with _initialising:
        _initialised[device.master].users += 1
    try:
        yield
    finally:
        _leave(device, config, topology.system.job)


def hooks(topology: BatchTopology, device: Device, config: RunConfig) -> tuple[Any, ...]:
    """Hooks of sessions on the system, for the case that it goes away; none on an emulated one."""
    if device.is_emulated:
        return ()
    initialise_again = _InitialiseAgain(device, config, topology.system.job)
    resolver = config.cluster
    client = getattr(resolver, "_cloud_tpu_client", None)
    if client is None or not client.api_available():
        return (initialise_again,)
    from trainer.tensorflow_internals import CloudTPUPreemptedHook

    # Exits with 1 when the cloud has taken the TPU away.
    return (initialise_again, CloudTPUPreemptedHook(resolver))


class _InitialiseAgain(tf.compat.v1.train.SessionRunHook):
    """Initialises a system whose workers were started anew, which is when sessions are lost."""

    def __init__(self, device: Device, config: RunConfig, job: str | None) -> None:
        self._device, self._config, self._job = device, config, job
        self._is_first = True

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Does so for each session but the first."""
        if not self._is_first:
            with _initialising:
                found = _initialised[self._device.master]
                found.topology = _configure(self._device.master, self._config, self._job)
        self._is_first = False


def _initialise(device: Device, config: RunConfig, job: str | None) -> bytes:
    with _initialising:
        if device.master not in _initialised:
            found = _configure(device.master, config, job)
            _initialised[device.master] = _Initialised(found)
        return _initialised[device.master].topology


def _leave(device: Device, config: RunConfig, job: str | None) -> None:
    with _initialising:
        _initialised[device.master].users -= 1
        if _initialised[device.master].users:
            return
        del _initialised[device.master]
        try:
            _run(device.master, config, lambda: tf.compat.v1.tpu.shutdown_system(job=job))
        except tf.errors.OpError as error:
            # It must not hide what the run has failed with; the next one initialises anyway.
            logger.warning("shutting the TPU system down failed: %s", error)


def _configure(master: str, config: RunConfig, job: str | None) -> bytes:
    logger.info("initialising the TPU system of %s", master or "this machine")
    found: bytes = _run(master, config, lambda: tf.compat.v1.tpu.initialize_system(job=job))
    return found


def _run(master: str, config: RunConfig, build: Callable[[], Any]) -> Any:
    with (
        tf.Graph().as_default(),
        tf.compat.v1.Session(master, config=config.session_config) as session,
    ):
        return session.run(build())


def _ask(master: str, config: RunConfig, mode: str) -> TpuSlice:
    """What a master says about its system."""
    cluster = config.session_config.cluster_def if config.session_config is not None else None
    # Eager, it would tell of this process, whatever the master is.
    with tf.Graph().as_default():
        found = tpu_system_metadata._query_tpu_system_metadata(
            master, cluster_def=cluster, query_topology=False
        )
    if not found.num_cores:
        devices = ", ".join(each.name for each in found.devices)
        raise TpuNotFound(
            f"Cannot find any TPU cores in the system: master {master!r} has {devices}. Check "
            f"the master's address and its TPU workers, or pass use_tpu=False."
        )
    job = config.tpu_job(mode) if master not in ("", "local") else None
    return TpuSlice(hosts=found.num_hosts, cores=found.num_cores, job=job)
