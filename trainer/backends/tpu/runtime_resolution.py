"""Chooses the TPU system of a run: emulated, PJRT devices, or a TPU that TensorFlow drives."""

import dataclasses
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from tpuserve import devices
from tpuserve.devices import jax_client
from tpuserve.errors import HostsDiffer, InvalidSetting, TpuNotFound
from tpuserve.files.disk_cache import EXECUTABLES_VARIABLE, find_executables_directory
from tpuserve.lowering.live_graph import lower_in_place
from tpuserve.pjrt.executable_cache import ExecutableCache
from tpuserve.pjrt.replica_step import ReplicaStep
from tpuserve.pjrt.step_program import StepProgram
from tpuserve.stablehlo.xla_errors import LineOf, unknown_line
from trainer.backends.tpu.pjrt.device_loop import DeviceLoop
from trainer.backends.tpu.pjrt.session import PjrtSession
from trainer.backends.tpu.pjrt.variable_uses import OUTFEED_DEQUEUE
from trainer.backends.tpu.runtime import PreparedTargets, TpuRuntime
from trainer.backends.tpu.tensorflow_runtime import TensorFlowRuntime, query_slice
from trainer.config.run_config import RunConfig
from trainer.config.strategies import count_replicas
from trainer.distribution.topology import BatchTopology, EmulatedTpuSlice, PjrtSlice
from trainer.hosts import program
from trainer.hosts.group import HostGroup, current_group
from trainer.model.spec import ModeKeys
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


@dataclass
class PjrtTpuRuntime(TpuRuntime):
    """A TPU system that consists of the PJRT devices of this process or of several hosts.

    Attributes:
      line_of: takes the name of a node as "node@function"; returns the line of model_fn that
        created the node, for error messages.
      seed: the seed of the random numbers of the steps; None for a random seed.
      checks_variables: whether the runtime itself raises a NanError if a trainable variable
        is NaN or infinite after a loop.
    """

    system: PjrtSlice
    platform: str
    line_of: LineOf
    seed: int | None = None
    master: str = ""
    only_first_core_computes: bool = False
    checks_variables: bool = True
    has_infeed: bool = False
    _loop: DeviceLoop | None = field(default=None, init=False)

    def assign_cores(self, topology: BatchTopology, config: RunConfig) -> Any:
        """Return a DeviceAssignment with one core for each replica."""
        if topology.cores_per_replica > 1:
            raise InvalidSetting(
                f"TPUConfig num_cores_per_replica is {topology.cores_per_replica}, and a model "
                f"cannot be split over several PJRT devices. Leave num_cores_per_replica out, or "
                f"emulate a TPU: TPUSERVE_TPU_RUNTIME=emulated."
            )
        return assign_consecutive_cores(topology)

    def prepare_targets(self, targets: Sequence[Any], topology: BatchTopology) -> PreparedTargets:
        """Translate the step for the devices, and replace targets by ops for `PjrtSession`."""
        done, batch, *received = targets
        step = ReplicaStep(done.graph.as_graph_def(), self.line_of)
        # Translate the step for XLA now, so that an unsupported op is reported before the run
        # starts.
        step.export(self.platform)
        checked = _float_variables(step)
        devices = self._list_devices(topology)
        cache = ExecutableCache(
            find_executables_directory(os.environ.get(EXECUTABLES_VARIABLE, ""))
        )
        program = StepProgram(step, devices, list(checked), cache)
        # Draw a seed of 62 bits, because it is passed to the devices as a signed 64-bit integer.
        seed = random.getrandbits(62) if self.seed is None else self.seed
        seed = current_group().broadcast("the seed", seed)
        sent = [
            output
            for operation in done.graph.get_operations()
            if operation.type == OUTFEED_DEQUEUE
            for output in operation.outputs
        ]
        loop = DeviceLoop(
            program, batch, sent, checked, seed, reads_ahead=topology.mode == ModeKeys.TRAIN
        )
        self._loop = loop
        return PreparedTargets([loop.done, loop.feed, *received], loop.end_feed, loop.end_results)

    def session_config(self, proto: Any) -> Any:
        """Return a ConfigProto that lets TensorFlow assign devices only to the ops that run."""
        proto = place_only_running_ops(proto)
        # Remove the device filters, because they name tasks of TF_CONFIG's cluster. This session
        # is not a part of the cluster: it runs in this process alone.
        del proto.device_filters[:]
        return proto

    def wrap_session(self, session: Any) -> Any:
        """Return a session that runs the loop of steps on PJRT devices."""
        assert self._loop is not None
        return PjrtSession(session, self._loop)

    @contextmanager
    def initialized_system(self, topology: BatchTopology, config: RunConfig) -> Iterator[None]:
        """Return a context that does nothing: jax has initialised the devices already."""
        yield

    def preemption_hooks(self, config: RunConfig) -> tuple[Any, ...]:
        """Return no hooks: the devices cannot be lost while this process runs."""
        return ()

    def describe(self) -> str:
        """Return an empty string: the log line already describes the devices."""
        return ""

    def _list_devices(self, topology: BatchTopology) -> tuple[Any, ...]:
        """Return the devices of the replicas on all hosts, in the order of the host numbers."""
        hosts, count = current_group(), topology.replicas // topology.hosts
        if hosts.size == 1:
            return jax_client.list_devices(self.platform)[:count]
        by_process: dict[int, list[Any]] = {}
        for device in jax_client.list_devices_of_all_processes(self.platform):
            by_process.setdefault(device.process_index, []).append(device)
        # Sort by host number and not by jax's process number. The two can differ, because on a TPU
        # jax numbers the processes by the positions of their chips.
        local = jax_client.list_devices(self.platform)[0].process_index
        order = hosts.gather("the number of jax's process", local)
        return tuple(device for process in order for device in by_process[process][:count])


def _float_variables(step: ReplicaStep) -> dict[int, str]:
    names = {
        variable.op.name
        for variable in tf.compat.v1.trainable_variables()
        if variable.dtype.is_floating
    }
    return {index: spec.name for index, spec in enumerate(step.variables) if spec.name in names}


def resolve_runtime(config: RunConfig, mode: str, line_of: LineOf = unknown_line) -> TpuRuntime:
    """Return the TPU system of a run.

    If `tpuserve.devices.find_tpu_system` finds an emulated TPU or PJRT devices, the run uses these.

    Args:
      line_of: takes the name of a node as "node@function"; returns the line of model_fn that
        created the node, for error messages.

    Raises:
      InvalidSetting: the config has a cluster whose processes cannot train together on this TPU.
    """
    # Connect to the other hosts first: jax must know the number of hosts before it creates its
    # PJRT client.
    hosts = program.join_hosts(config)
    tpu_system = devices.find_tpu_system()
    runtime = _make_own_runtime(config, hosts, tpu_system, line_of)
    if runtime is not None:
        return runtime
    master = (config.evaluation_master if mode == ModeKeys.EVAL else config.master) or ""
    if master or tpu_system.has_tpu:
        return TensorFlowRuntime(query_slice(master, config, mode), master)
    raise TpuNotFound(
        f"use_tpu=True: {tpu_system}, and RunConfig names no master or cluster that has a TPU. "
        f"Pass use_tpu=False to run on the CPU or a GPU, or emulate a TPU: "
        f"{devices.EMULATION_VARIABLE}=8, or tpuserve.emulated_tpu(cores=8)."
    )


def resolve_strategy_runtime(config: RunConfig, line_of: LineOf) -> TpuRuntime:
    """Return a TPU system of one core, or PJRT device, for each replica of train_distribute.

    Raises:
      InvalidSetting: this process, or another host, has not as many.
    """
    strategy, addresses = config.train_distribute, config.task.hosts
    replicas = count_replicas(strategy)
    processes = 1 if addresses is None else len(addresses.addresses)
    asked = f"RunConfig train_distribute is a {type(strategy).__name__} of {replicas} replicas"
    if processes > 1 and strategy.cluster_resolver is not None and tf.executing_eagerly():
        raise InvalidSetting(
            f"{asked} from eager mode, in which TensorFlow itself uses the addresses of TF_CONFIG. "
            f"Call tf.compat.v1.disable_eager_execution() before the program makes the strategy."
        )
    hosts = program.join_hosts(config)
    tpu_system = devices.find_tpu_system()
    if not (tpu_system.is_emulated or tpu_system.pjrt_platform):
        raise InvalidSetting(
            f"{asked}, which run on PJRT devices, and this process uses none. Set "
            f"{devices.RUNTIME_VARIABLE}={devices.PJRT}, on a CPU also "
            f"{jax_client.PLATFORM_VARIABLE}=cpu and XLA_FLAGS="
            f"--xla_force_host_platform_device_count={-(-replicas // processes)}; or leave it out."
        )
    if replicas % hosts.size or replicas // hosts.size > tpu_system.tpu_cores:
        raise InvalidSetting(
            f"{asked}, and {hosts.size} "
            f"{'process has' if hosts.size == 1 else 'processes have each'} {tpu_system}. Name as "
            f"many devices in the strategy as there are, or leave it out."
        )
    system = dataclasses.replace(tpu_system, tpu_cores=replicas // hosts.size, hosts=1)
    runtime = _make_own_runtime(config, hosts, system, line_of)
    assert runtime is not None
    return runtime


def _make_own_runtime(
    config: RunConfig, hosts: HostGroup, tpu_system: devices.TpuSystem, line_of: LineOf
) -> TpuRuntime | None:
    """Return the runtime of an emulated TPU or of PJRT devices; None for another system."""
    if tpu_system.is_emulated:
        return EmulatedRuntime(
            EmulatedTpuSlice(tpu_system.hosts, tpu_system.tpu_cores),
            is_compiled=tpu_system.is_compiled and config.tpu_config.compile_emulated,
            requested_by=tpu_system.asked_by,
        )
    if tpu_system.pjrt_platform:
        return PjrtTpuRuntime(
            _find_pjrt_slice(hosts, tpu_system),
            tpu_system.pjrt_platform,
            line_of,
            seed=config.tf_random_seed,
        )
    return None


def _find_pjrt_slice(hosts: HostGroup, tpu_system: devices.TpuSystem) -> PjrtSlice:
    """Return the TPU slice (hosts and cores) that the PJRT devices of all hosts form."""
    platform = tpu_system.pjrt_platform
    if hosts.size == 1:
        return PjrtSlice(1, tpu_system.tpu_cores, platform=platform)
    counts = hosts.gather("the number of devices", tpu_system.tpu_cores)
    for host, count in enumerate(counts):
        if count != counts[0]:
            raise HostsDiffer(
                f"{hosts.describe(host)} has {count} devices of the platform {platform}, and "
                f"{hosts.describe(0)} has {counts[0]}. Give every host the same number of devices."
            )
    return PjrtSlice(hosts.size, sum(counts), local_host=hosts.index, platform=platform)
