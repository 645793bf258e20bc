"""Connects this process and its jax client to the other hosts that run the same program."""

import atexit
import socket
import threading
from typing import Any

from tpuserve import devices
from tpuserve.devices import jax_client
from tpuserve.errors import HostsDiffer, InvalidSetting
from trainer.config import host_addresses, tf_config
from trainer.config.run_config import RunConfig
from trainer.hosts import joining
from trainer.hosts.group import HostGroup, current_group, set_current_group

_LOOPBACK = "127.0.0.1"
_BUFFER_BYTES = 65_536


def runs_on_several_hosts(config: RunConfig) -> bool:
    """Return whether a program that uses the TPU runs on the PJRT devices of several hosts.

    Raises:
      InvalidSetting: the config has a cluster whose processes cannot train together on the TPU.
    """
    _check_cluster(config)
    return config.task.hosts is not None and bool(devices.find_pjrt_platform())


def join_hosts(config: RunConfig) -> HostGroup:
    """Connect this process to the other hosts that the config names.

    Only the first call in a process connects; later calls return the same group.

    Returns:
      The group of all hosts. It consists of this host alone if the config names no hosts, or if the
      program does not use PJRT devices.

    Raises:
      InvalidSetting: the config has a cluster whose processes cannot train together on the TPU.
    """
    hosts = config.task.hosts
    if not runs_on_several_hosts(config) or hosts is None or current_group().hosts is not None:
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
    service = f"localhost:{port}" if group.is_first else _Forwarder(name, port).address
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


def _check_cluster(config: RunConfig) -> None:
    """Check that the processes of the config's cluster can train together on the TPU."""
    emulated, platform = devices.find_emulated_tpu_system(), devices.find_pjrt_platform()
    if emulated is None and not platform:
        return
    pjrt_setting = (
        f"{devices.RUNTIME_VARIABLE}={devices.PJRT} and {jax_client.PLATFORM_VARIABLE}=cpu"
    )
    if config.cluster is not None and not _is_tpu_resolver(config.cluster):
        spec = config.cluster_spec
        count = sum(map(spec.num_tasks, spec.jobs))
        if count > 1:
            raise InvalidSetting(
                f"RunConfig's cluster resolver has {count} tasks, and with use_tpu=True only "
                f"{tf_config.VARIABLE} or {host_addresses.HOSTS_VARIABLE} names the hosts. Name "
                f"them there, leave the cluster out, and set {pjrt_setting}."
            )
    jobs = config.task.jobs
    count = sum(map(len, jobs.values()))
    if emulated is not None and count > 1:
        raise InvalidSetting(
            f"{tf_config.VARIABLE} has a cluster of {count} processes, and the emulated TPU of "
            f"{emulated.asked_by} is in one process. Set {pjrt_setting} to train on the CPU "
            f"devices of the chief and the workers, or give use_tpu=False."
        )
    others = set(jobs) - {tf_config.CHIEF, tf_config.MASTER, tf_config.WORKER}
    if others and platform:
        raise InvalidSetting(
            f"The cluster in {tf_config.VARIABLE} has the jobs {', '.join(sorted(others))}, and "
            f"PJRT devices are used, on which only a chief and workers train. Leave these jobs "
            f"out: each host has the variables itself."
        )


def _is_tpu_resolver(resolver: Any) -> bool:
    return any(base.__name__ == "TPUClusterResolver" for base in type(resolver).__mro__)


def _find_free_port() -> int:
    with socket.create_server(("", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


class _Forwarder:
    """Forwards the connections to a local `address`, and keeps them open if the host is lost."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._listener = socket.create_server((_LOOPBACK, 0))
        self.address = f"{_LOOPBACK}:{self._listener.getsockname()[1]}"
        # Keep a reference to each accepted socket, so that it stays open. Python closes a socket
        # when it is garbage-collected.
        self._accepted: list[socket.socket] = []
        threading.Thread(target=self._accept, name="hosts-forward", daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            self._accepted.append(near)
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            for source, sink in ((near, far), (far, near)):
                threading.Thread(
                    target=_copy, args=(source, sink), name="hosts-forward", daemon=True
                ).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    """Copy bytes from one socket to another until either connection ends; leave both open."""
    try:
        while data := source.recv(_BUFFER_BYTES):
            sink.sendall(data)
    except OSError:
        return
