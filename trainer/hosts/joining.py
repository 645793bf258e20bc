"""Connects the processes of a program on several hosts by TCP.

Host 0 listens on a port, and the other hosts connect to it when the program first uses the TPU.
"""

import contextlib
import logging
import os
import socket
import time
from typing import Any

from tpuserve import __version__
from tpuserve.errors import Code, CodedError, HostMissing, HostsDiffer, InvalidSetting
from trainer.config.host_addresses import HostAddresses
from trainer.hosts.connection import Connection
from trainer.hosts.group import HostGroup

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
