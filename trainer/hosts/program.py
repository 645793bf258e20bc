"""Connects this process and its jax client to the other hosts that run the same program."""

import atexit
import socket

from tpuserve import devices
from tpuserve.devices import jax_client
from tpuserve.errors import HostsDiffer, InvalidSetting
from trainer.config import tf_config
from trainer.config.run_config import RunConfig
from trainer.hosts import joining
from trainer.hosts.forwarder import Forwarder
from trainer.hosts.group import HostGroup, current_group, set_current_group


def runs_on_several_hosts(config: RunConfig) -> bool:
    """Return whether a program that uses the TPU runs on the PJRT devices of several hosts.

    Args:
      config: the RunConfig, whose `task.hosts` has the addresses of the hosts.
    """
    return config.task.hosts is not None and bool(devices.find_pjrt_platform())


def join_hosts(config: RunConfig) -> HostGroup:
    """Connect this process to the other hosts that the config names.

    Only the first call in a process connects; later calls return the same group.

    Args:
      config: the RunConfig, whose `task.hosts` has the addresses of the hosts.

    Returns:
      The group of all hosts. It consists of this host alone if the config names no hosts, or if the
      program does not use PJRT devices.

    Raises:
      InvalidSetting: PJRT devices are used, and TF_CONFIG has jobs other than chief and worker.
      HostMissing: a host has not connected in time.
      HostsDiffer: the hosts have different settings.
    """
    _check_jobs(config)
    hosts = config.task.hosts
    if hosts is None or current_group().hosts is not None or not runs_on_several_hosts(config):
        return current_group()
    platform = devices.find_pjrt_platform()
    jax_client.check_installed()
    timeout_secs = joining.find_timeout_secs()
    group = joining.connect_hosts(hosts, timeout_secs)
    platforms = group.gather("the platform", platform)
    if len(set(platforms)) > 1:
        raise HostsDiffer(
            f"the hosts use devices of different platforms: {', '.join(platforms)}. Set "
            f"{jax_client.PLATFORM_VARIABLE} to the same value on all hosts."
        )
    port = group.broadcast("the port of jax's service", _find_free_port())
    name, _ = hosts.first
    service = f"localhost:{port}" if group.is_first else Forwarder(name, port).address
    with group.needing_all():
        jax_client.connect_processes(
            platform,
            group.index,
            group.size,
            service=service,
            port=port,
            timeout_secs=timeout_secs,
        )
    # Let `leave` run at the exit of the process, before jax stops its coordination service. Exit
    # handlers run in the reverse order of registration, and jax has already registered its own.
    atexit.register(group.leave)
    set_current_group(group)
    return group


def _check_jobs(config: RunConfig) -> None:
    """Check that TF_CONFIG has only a chief and workers, if PJRT devices are used.

    Raises:
      InvalidSetting: there are other jobs, such as parameter servers.
    """
    others = set(config.task.jobs) - {tf_config.CHIEF, tf_config.MASTER, tf_config.WORKER}
    if others and devices.find_pjrt_platform():
        raise InvalidSetting(
            f"The cluster in {tf_config.VARIABLE} has the jobs {', '.join(sorted(others))}, and "
            f"PJRT devices are used, on which only a chief and workers train. Leave these jobs "
            f"out: each host has the variables itself."
        )


def _find_free_port() -> int:
    with socket.create_server(("", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
