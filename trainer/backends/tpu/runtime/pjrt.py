"""The TPU runtime that runs steps on PJRT devices, which are the devices that jax uses."""

import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tpuserve.devices import jax_client
from tpuserve.errors import InvalidSetting
from tpuserve.files.cache_directory import EXECUTABLES_VARIABLE, find_executables_directory
from tpuserve.pjrt.executable_cache import ExecutableCache
from tpuserve.pjrt.replica_step import ReplicaStep
from tpuserve.pjrt.step_program import StepProgram
from tpuserve.stablehlo.xla_errors import LineOf
from trainer.backends.tpu.pjrt.device_loop import DeviceLoop
from trainer.backends.tpu.pjrt.session import PjrtSession
from trainer.backends.tpu.pjrt.variable_uses import OUTFEED_DEQUEUE
from trainer.backends.tpu.runtime import emulated
from trainer.backends.tpu.runtime.base import PreparedTargets, TpuRuntime
from trainer.config.run_config import RunConfig
from trainer.distribution.topology import BatchTopology, PjrtSlice
from trainer.hosts.group import current_group
from trainer.model.spec import ModeKeys


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
        return emulated.assign_consecutive_cores(topology)

    def prepare_targets(self, targets: Sequence[Any], topology: BatchTopology) -> PreparedTargets:
        """Translate the step for the devices, and replace targets by ops for `PjrtSession`."""
        done, batch, *received = targets
        step = ReplicaStep(done.graph.as_graph_def(), self.line_of)
        # Translate the step for XLA now, so that an unsupported op is reported before the run
        # starts.
        step.export(self.platform)
        checked = _float_variables(step)
        devices = self._list_devices()[: topology.replicas]
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
        proto = emulated.place_only_running_ops(proto)
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

    def _list_devices(self) -> tuple[Any, ...]:
        """Return the devices of all hosts, in the order of the host numbers."""
        hosts = current_group()
        if hosts.size == 1:
            return jax_client.list_devices(self.platform)
        by_process: dict[int, list[Any]] = {}
        for device in jax_client.list_devices_of_all_processes(self.platform):
            by_process.setdefault(device.process_index, []).append(device)
        # Sort by host number and not by jax's process number. The two can differ, because on a TPU
        # jax numbers the processes by the positions of their chips.
        local = jax_client.list_devices(self.platform)[0].process_index
        order = hosts.gather("the number of jax's process", local)
        return tuple(device for process in order for device in by_process[process])


def _float_variables(step: ReplicaStep) -> dict[int, str]:
    names = {
        variable.op.name
        for variable in tf.compat.v1.trainable_variables()
        if variable.dtype.is_floating
    }
    return {index: spec.name for index, spec in enumerate(step.variables) if spec.name in names}
