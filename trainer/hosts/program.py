"""Connects this process and its jax client to the other hosts that run the same program."""

import atexit
import contextlib
import logging
import os
import socket
import threading
import time
from typing import Any

from tpuserve import __version__, devices
from tpuserve.devices import jax_client
from tpuserve.errors import Code, CodedError, HostMissing, HostsDiffer, InvalidSetting
from trainer.config import host_addresses, tf_config
from trainer.config.host_addresses import HostAddresses
from trainer.config.run_config import RunConfig
from trainer.hosts.connection import Connection
from trainer.hosts.group import HostGroup, current_group, set_current_group

logger = logging.getLogger("tensorflow.trainer")
TIMEOUT_VARIABLE = "TPUSERVE_HOSTS_TIMEOUT"
"""The environment variable that sets how long a host waits for the other hosts, in seconds."""
_DEFAULT_TIMEOUT_SECS = 300.0
_RETRY_SECS = 0.2
# How long, in seconds, host 0 waits until a process that has connected sends its host number.
_HELLO_SECS = 10.0


def find_timeout_secs() -> float:
    """Return how long a host waits for the other hosts to connect, in seconds."""
    text = os.environ.get(TIMEOUT_VARIABLE, "").strip()
    try:
        seconds = float(text) if text else _DEFAULT_TIMEOUT_SECS
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InvalidSetting(
            f"{TIMEOUT_VARIABLE} is {text!r}. Set it to a number of seconds, or unset it, which "
            f"means {_DEFAULT_TIMEOUT_SECS:g}."
        )
    return seconds


def connect_hosts(hosts: HostAddresses, timeout_secs: float, **options: Any) -> HostGroup:
    """Connect this process to the processes of the same program on the other hosts.

    Args:
      timeout_secs: how long to wait for all hosts to connect, in seconds.
    """
    deadline = time.monotonic() + timeout_secs
    if hosts.index:
        connections = {0: _connect_to_first(hosts, deadline, timeout_secs)}
    else:
        connections = _accept_others(hosts, deadline, timeout_secs)
    return HostGroup(hosts, connections, **options)


def _accept_others(
    hosts: HostAddresses, deadline: float, timeout_secs: float
) -> dict[int, Connection]:
    """Wait on host 0 until all other hosts have connected."""
    _, port = hosts.first
    connections: dict[int, Connection] = {}
    try:
        listener = socket.create_server(("", port))
    except OSError as error:
        raise CodedError(
            f"host 0 cannot listen on port {port} for the other hosts: {error.strerror}. End the "
            f"process that uses the port, or give host 0 another port, on all hosts: "
            f"{hosts.addresses[0].partition(':')[0]}:PORT.",
            Code.UNAVAILABLE,
        ) from error
    logger.info("host 0 of %d: waiting for the others on port %d", len(hosts.addresses), port)
    with listener, contextlib.ExitStack() as on_error:
        while len(connections) < len(hosts.addresses) - 1:
            listener.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                connected, _ = listener.accept()
            except TimeoutError:
                missing = set(range(1, len(hosts.addresses))) - set(connections)
                text = (
                    f"{' and '.join(map(hosts.describe, sorted(missing)))} did not join host 0 "
                    f"within {timeout_secs:g} s. Start the program on every host, let every host "
                    f"reach port {port} of host 0, or set {TIMEOUT_VARIABLE} to more seconds."
                )
                _send_to_all(connections, error=text)
                raise HostMissing(text) from None
            connection = Connection(connected)
            on_error.callback(connection.close)
            _welcome(connection, hosts, connections)
        on_error.pop_all()
    _send_to_all(connections, kind="welcome")
    return connections


def _welcome(
    connection: Connection, hosts: HostAddresses, connections: dict[int, Connection]
) -> None:
    """Receive the first message on a new connection, and add the connection to `connections`."""
    try:
        hello = connection.receive(_HELLO_SECS)
    except TimeoutError:
        hello = None
    index = hello.get("index") if hello and hello.get("kind") == "hello" else None
    if hello is None or not isinstance(index, int):
        connection.close()
        return
    count, version = hello.get("count"), hello.get("version")
    expected = len(hosts.addresses)
    error = ""
    if count != expected:
        error = f"host {index} was started with {count} hosts, and host 0 with {expected}"
    elif version != __version__:
        error = f"host {index} has tpuserve {version}, and host 0 has {__version__}"
    elif not 0 < index < expected or index in connections:
        error = f"two processes were started as host {index}"
    if error:
        text = f"{error}. Give every host the same addresses in the same order, and its own number."
        _send_to_all({**connections, -1: connection}, error=text)
        raise HostsDiffer(text)
    connections[index] = connection


def _connect_to_first(hosts: HostAddresses, deadline: float, timeout_secs: float) -> Connection:
    """Connect to host 0, and wait until all other hosts have connected to host 0 too."""
    name, port = hosts.first
    logger.info("host %d of %d: connecting to %s:%d", hosts.index, len(hosts.addresses), name, port)
    with contextlib.ExitStack() as on_error:
        while True:
            left = deadline - time.monotonic()
            try:
                connection = Connection(socket.create_connection((name, port), max(left, 0.001)))
                on_error.callback(connection.close)
                connection.send(
                    kind="hello",
                    index=hosts.index,
                    count=len(hosts.addresses),
                    version=__version__,
                )
                # Wait for the answer for the whole timeout and a few seconds more, even if a part
                # of the timeout has passed.
                answer = connection.receive(timeout_secs + _HELLO_SECS)
                if answer is not None:
                    break
                reason = "it has closed the connection"
            except OSError as error:
                reason = error.strerror or str(error)
            if time.monotonic() + _RETRY_SECS >= deadline:
                raise HostMissing(
                    f"host 0 ({name}:{port}) does not answer within {timeout_secs:g} s: {reason}. "
                    f"Start the program on host 0 too, check its address and that port {port} can "
                    f"be reached, or set {TIMEOUT_VARIABLE} to more seconds."
                )
            time.sleep(_RETRY_SECS)
        if answer.get("error"):
            raise HostMissing(f"host 0 reports: {answer['error']}")
        on_error.pop_all()
        return connection


def _send_to_all(connections: dict[int, Connection], **message: Any) -> None:
    for connection in connections.values():
        try:
            connection.send(**message)
        except OSError:
            # Ignore that a host has ended, because `HostGroup` reports its loss later.
            continue


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
    timeout_secs = find_timeout_secs()
    group = connect_hosts(hosts, timeout_secs)
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
