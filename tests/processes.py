"""Runs the command `tpuserve` in processes, and finds free loopback ports for servers."""

import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from server.process import ports
from tests.preloaded.process import PreloadedProcess, run_preloaded
from tpuserve.errors import CodedError
from tpuserve.tags import TagSet

LOOPBACK = "127.0.0.1"

# Search below the range of ephemeral ports, which the system may give to another process at any
# time, and above the ports that Ray gives to its workers.
_FIRST_PORT, _LAST_PORT = 20_000, 32_000
_BLOCK = 250
_turns: dict[int, Iterator[int]] = {}


def free_ports(count: int) -> list[int]:
    """Return distinct free ports that no other test gets.

    A server of a test binds its port long after the port was found free. So each process that runs
    tests has its own block of ports, and takes the next free port of the block each time.
    """
    turn = _turns.get(os.getpid())
    if turn is None:
        turn = _turns[os.getpid()] = itertools.cycle(_block())
    return [next(filter(_is_free, turn)) for _ in range(count)]


def _block() -> range:
    """Reserve a block of ports for this process, and return the block.

    The process reserves the block by binding a UDP socket to the block's first port.
    """
    for first in range(_FIRST_PORT, _LAST_PORT, _BLOCK):
        holder = socket.socket(type=socket.SOCK_DGRAM)
        try:
            holder.bind((LOOPBACK, first))
        except OSError:
            holder.close()
            continue
        # Keep the socket open until the process ends, without an object that Python would close.
        holder.detach()
        return range(first, first + _BLOCK)
    raise AssertionError("all blocks of ports are taken")


def _is_free(port: int) -> bool:
    try:
        ports.bind_port("0.0.0.0", port, "--port").close()
    except CodedError:
        return False
    return True


def run_tpuserve(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run `tpuserve` with these arguments and environment variables; return its result."""
    return run_preloaded(["-m", "tpuserve", *arguments], env={**os.environ, **environment})


class ServeProcess:
    """A running `tpuserve serve`.

    Attributes:
      rest: the address of the REST API, "127.0.0.1:8501".
      rpc: the address of the gRPC API, "127.0.0.1:8500".
      log: the log lines until the server was ready.
    """

    def __init__(
        self,
        base_path: Path | None,
        tag_set: TagSet | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        """Start the server with these and other flags, and wait until it is ready.

        Args:
          base_path: the base path of the model `half`; None if `flags` name the models.
        """
        rpc_port, rest_port = free_ports(2)
        self.rest, self.rpc = f"{LOOPBACK}:{rest_port}", f"{LOOPBACK}:{rpc_port}"
        environment = dict(os.environ)
        if tag_set is not None and "tpu" in tag_set:
            environment["TPUSERVE_EMULATED_TPU"] = "1"
        arguments = ["--host", LOOPBACK, f"--port={rpc_port}", "--rest_api_port", str(rest_port)]
        if base_path is not None:
            arguments += ["--model_name=half", f"--model_base_path={base_path}"]
        arguments += flags
        if tag_set is not None:
            arguments += ["--saved_model_tags", ",".join(sorted(tag_set))]
        self._process = PreloadedProcess(
            [sys.executable, "-m", "tpuserve", "serve", *arguments],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log = "".join(self._lines_until_ready())

    def _lines_until_ready(self) -> Iterator[str]:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            yield line
            if line.endswith(" ready\n"):
                return
        raise AssertionError(f"not ready, but ended with {self._process.wait()}")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal and wait for the end; return the exit status and the last log lines."""
        self._process.send_signal(number)
        _, log = self._process.communicate(timeout=60)
        return self._process.returncode, log

    def kill(self) -> None:
        """Kill the server, and wait until its process has ended."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def serving(base_path: Path, tag_set: TagSet | None = None) -> Iterator[ServeProcess]:
    """Run a server of a model named "half"; kill the server at the end of the context."""
    server = ServeProcess(base_path, tag_set)
    try:
        yield server
    finally:
        server.kill()
