"""The runtime of a real TPU whose TensorFlow workers run TensorFlow's own TPU ops."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve.errors import TpuNotFound
from trainer.backends.tpu.runtime import PreparedTargets, TpuRuntime
from trainer.config.run_config import RunConfig
from trainer.distribution.topology import BatchTopology, TpuSlice
from trainer.tensorflow_internals import (
    Topology,
    device_assignment,
    get_private_attribute,
    tpu_cluster_resolver,
    tpu_system_metadata,
)

logger = logging.getLogger("tensorflow.trainer")

# Number of cores of a replica → the shape (x, y, z, core) of the box that these cores form in the
# TPU's mesh. TPUEstimator's documentation of num_cores_per_replica gives these shapes.
_COMPUTATION_SHAPES = {
    1: [1, 1, 1, 1],
    2: [1, 1, 1, 2],
    4: [1, 2, 1, 2],
    8: [2, 2, 1, 2],
    16: [4, 2, 1, 2],
    32: [4, 4, 1, 2],
    64: [8, 4, 1, 2],
    128: [8, 8, 1, 2],
}


@dataclass
class _InitializedSystem:
    """An initialised TPU system, which several runs of this process can share."""

    topology: bytes
    users: int = 0


_initialization_lock = threading.Lock()
# Session target (master) → the TPU system there. Nested runs share the system: an evaluation within
# training must neither initialise the system again nor shut it down.
_initialized_systems: dict[str, _InitializedSystem] = {}


@dataclass(frozen=True)
class TensorFlowRuntime(TpuRuntime):
    """A real TPU system that TensorFlow drives."""

    system: TpuSlice
    master: str = ""
    only_first_core_computes: bool = False

    def assign_cores(self, topology: BatchTopology, config: RunConfig) -> Any:
        """Return a DeviceAssignment that gives each replica a box of neighbouring cores."""
        return device_assignment.device_assignment(
            Topology(serialized=self._initialize(config)),
            computation_shape=_COMPUTATION_SHAPES[topology.cores_per_replica],
            num_replicas=topology.replicas,
        )

    def prepare_targets(self, targets: Sequence[Any], topology: BatchTopology) -> PreparedTargets:
        """Return the unchanged targets, because a real TPU runs the TPU graph as it is."""
        return PreparedTargets(list(targets))

    def session_config(self, proto: Any) -> Any:
        """Return the ConfigProto unchanged: a session on a real TPU needs no other settings."""
        return proto

    @contextmanager
    def initialized_system(self, topology: BatchTopology, config: RunConfig) -> Iterator[None]:
        """Initialise the TPU system; shut the system down when the last run that uses it ends."""
        self._initialize(config)
        with _initialization_lock:
            _initialized_systems[self.master].users += 1
        try:
            yield
        finally:
            self._release(config)

    def preemption_hooks(self, config: RunConfig) -> tuple[Any, ...]:
        """Return hooks that handle restarted TPU workers and preemptions of the TPU.

        The first hook initialises the TPU system again after its workers have restarted.
        """
        reinitialize = _ReinitializeHook(self, config)
        resolver = config.cluster
        if not isinstance(resolver, tpu_cluster_resolver.TPUClusterResolver):
            return (reinitialize,)
        client = get_private_attribute(resolver, "_cloud_tpu_client")
        if not client.api_available():
            return (reinitialize,)
        from trainer.tensorflow_internals import CloudTPUPreemptedHook

        return (reinitialize, CloudTPUPreemptedHook(resolver))

    def describe(self) -> str:
        """Return an empty string: the log line already describes the hosts and cores."""
        return ""

    def reinitialize(self, config: RunConfig) -> None:
        """Initialise the TPU system again after its workers have restarted."""
        with _initialization_lock:
            _initialized_systems[self.master].topology = self._configure(config)

    def _initialize(self, config: RunConfig) -> bytes:
        """Initialise the TPU system, unless it is initialised already."""
        with _initialization_lock:
            if self.master not in _initialized_systems:
                _initialized_systems[self.master] = _InitializedSystem(self._configure(config))
            return _initialized_systems[self.master].topology

    def _release(self, config: RunConfig) -> None:
        with _initialization_lock:
            _initialized_systems[self.master].users -= 1
            if _initialized_systems[self.master].users:
                return
            del _initialized_systems[self.master]
            try:
                job = self.system.job
                run_on_master(
                    self.master, config, lambda: tf.compat.v1.tpu.shutdown_system(job=job)
                )
            except tf.errors.OpError as error:
                # Log a failed shutdown instead of raising an error, which would hide the error of
                # the run. The next run initialises the system in any case.
                logger.warning("shutting the TPU system down failed: %s", error)

    def _configure(self, config: RunConfig) -> bytes:
        logger.info("initialising the TPU system of %s", self.master or "this machine")
        job = self.system.job
        topology: bytes = run_on_master(
            self.master, config, lambda: tf.compat.v1.tpu.initialize_system(job=job)
        )
        return topology


class _ReinitializeHook(tf.compat.v1.train.SessionRunHook):
    """Initialises the TPU system again for each new session of a run except the first."""

    def __init__(self, runtime: TensorFlowRuntime, config: RunConfig) -> None:
        self._runtime, self._config = runtime, config
        self._is_first = True

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Initialise the TPU system again, unless this is the first session."""
        if not self._is_first:
            self._runtime.reinitialize(self._config)
        self._is_first = False


def run_on_master(master: str, config: RunConfig, build: Callable[[], Any]) -> Any:
    """Build ops in a new graph, run them in a session at a session target; return their values."""
    with (
        tf.Graph().as_default(),
        tf.compat.v1.Session(master, config=config.session_config) as session,
    ):
        return session.run(build())


def query_slice(master: str, config: RunConfig, mode: str) -> TpuSlice:
    """Query a session target (master) for the hosts and cores of its TPU system."""
    cluster = config.session_config.cluster_def if config.session_config is not None else None
    # Query in graph mode. In eager mode TensorFlow would ignore the master, and describe the
    # devices of this process.
    with tf.Graph().as_default():
        metadata = tpu_system_metadata._query_tpu_system_metadata(
            master, cluster_def=cluster, query_topology=False
        )
    if not metadata.num_cores:
        devices = ", ".join(device.name for device in metadata.devices)
        raise TpuNotFound(
            f"Cannot find any TPU cores in the system: master {master!r} has {devices}. Check "
            f"the master's address and its TPU workers, or pass use_tpu=False."
        )
    job = config.tpu_job(mode) if master not in ("", "local") else None
    return TpuSlice(hosts=metadata.num_hosts, cores=metadata.num_cores, job=job)
