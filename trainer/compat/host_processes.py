"""Runs a program in several processes of this machine, each of which stands for a host.

The module implements the option --processes of `tpuserve run`.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

from tpuserve import devices
from tpuserve.devices import jax_client
from trainer.config import host_addresses

_LOOPBACK = "127.0.0.1"
_COUNT_FLAG = "--xla_force_host_platform_device_count"
# When a process has failed, the remaining processes get SIGTERM after this time, in seconds. A
# process that is connected to the failed process ends by itself earlier, when the connection
# breaks. Without the signal, other processes would wait for the failed process forever.
_GRACE_SECS = 30.0
# The time in seconds that processes have to end after SIGTERM. Then the remaining ones get SIGKILL.
_KILL_SECS = 15.0
_POLL_SECS = 0.1
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_processes(environments: Sequence[Mapping[str, str]], arguments: Sequence[str]) -> int:
    """Start the command `tpuserve run` in several processes, and wait for all of them.

    The standard output of process 0 becomes the standard output of this process.

    Returns:
      The exit status for this process: 0, or the status of the first process that failed.
    """
    started: list[subprocess.Popen[bytes]] = []
    copying: list[threading.Thread] = []
    with _forwarding_signals(started):
        for index, environment in enumerate(environments):
            process = subprocess.Popen(
                [sys.executable, "-m", "tpuserve.run", *arguments],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=None if index == 0 else subprocess.PIPE,
                stderr=subprocess.PIPE,
                # Start the process in a new session: Ctrl-C then sends SIGINT only to the parent
                # process, which forwards the signal once.
                start_new_session=True,
            )
            started.append(process)
            for stream in filter(None, (process.stdout, process.stderr)):
                thread = threading.Thread(target=_copy_lines, args=(stream, index), daemon=True)
                thread.start()
                copying.append(thread)
        status = _wait(started)
    for thread in copying:
        thread.join()
    return status


def make_environments(processes: int, cores: int) -> list[dict[str, str]]:
    """Return environment variables for processes that train together on JAX's CPU devices."""
    hosts = ",".join([f"{_LOOPBACK}:{_find_free_port()}", *[_LOOPBACK] * (processes - 1)])
    others = [
        flag
        for flag in os.environ.get("XLA_FLAGS", "").split()
        if not flag.startswith(f"{_COUNT_FLAG}=")
    ]
    return [
        {
            host_addresses.HOSTS_VARIABLE: hosts,
            host_addresses.HOST_INDEX_VARIABLE: str(index),
            devices.RUNTIME_VARIABLE: devices.PJRT,
            jax_client.PLATFORM_VARIABLE: "cpu",
            "XLA_FLAGS": " ".join([*others, f"{_COUNT_FLAG}={cores}"]),
        }
        for index in range(processes)
    ]


def _wait(processes: Sequence["subprocess.Popen[bytes]"]) -> int:
    """Wait until all processes have ended, and return the exit status for this process."""
    status = 0
    deadline: float | None = None
    is_killing = False
    while any([process.poll() is None for process in processes]):
        failed = [process.returncode for process in processes if process.returncode]
        now = time.monotonic()
        if failed and deadline is None:
            status, deadline = failed[0], now + _GRACE_SECS
        elif deadline is not None and now > deadline:
            _send(processes, signal.SIGKILL if is_killing else signal.SIGTERM)
            is_killing, deadline = True, now + _KILL_SECS
        time.sleep(_POLL_SECS)
    status = status or next((process.returncode for process in processes if process.returncode), 0)
    # Popen.returncode is the negative number of the signal if a signal ended the process. Return
    # 128 plus the number in this case, as shells do.
    return status if status >= 0 else 128 - status


def _send(processes: Sequence["subprocess.Popen[bytes]"], number: int) -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(number)


@contextmanager
def _forwarding_signals(processes: Sequence["subprocess.Popen[bytes]"]) -> Iterator[None]:
    """Forward the signals of this process to other processes, inside a with block."""

    def forward(number: int, frame: Any) -> None:
        _send(processes, number)

    previous = {number: signal.signal(number, forward) for number in _FORWARDED}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _copy_lines(stream: IO[bytes], index: int) -> None:
    """Copy a process's output to standard error, with the process's number before each line."""
    for line in stream:
        text = line if line.endswith(b"\n") else line + b"\n"
        sys.stderr.buffer.write(f"[{index}] ".encode() + text)
        sys.stderr.buffer.flush()


def _find_free_port() -> int:
    with socket.create_server((_LOOPBACK, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
