"""Chooses the TPU system of a run: emulated, PJRT devices, or a TPU that TensorFlow drives."""

from tpuserve import devices
from tpuserve.errors import HostsDiffer, TpuNotFound
from tpuserve.stablehlo.xla_errors import LineOf, unknown_line
from trainer.backends.tpu.runtime.base import TpuRuntime
from trainer.backends.tpu.runtime.emulated import EmulatedRuntime
from trainer.backends.tpu.runtime.pjrt import PjrtTpuRuntime
from trainer.backends.tpu.runtime.tensorflow import TensorFlowRuntime, query_slice
from trainer.config.run_config import RunConfig
from trainer.distribution.topology import EmulatedTpuSlice, PjrtSlice
from trainer.hosts import program
from trainer.hosts.group import HostGroup
from trainer.model.spec import ModeKeys


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
    master = (config.evaluation_master if mode == ModeKeys.EVAL else config.master) or ""
    if master or tpu_system.has_tpu:
        return TensorFlowRuntime(query_slice(master, config, mode), master)
    raise TpuNotFound(
        f"use_tpu=True: {tpu_system}, and RunConfig names no master or cluster that has a TPU. "
        f"Pass use_tpu=False to run on the CPU or a GPU, or emulate a TPU: "
        f"{devices.EMULATION_VARIABLE}=8, or tpuserve.emulated_tpu(cores=8)."
    )


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
