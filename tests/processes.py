"""`tpuserve` as a process of its own, on free loopback ports."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from server import ports
from tpuserve.tags import TagSet

LOOPBACK = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, no two the same."""
    held = [ports.reserve(LOOPBACK, 0, "--port") for _ in range(count)]
    numbers = [int(each.getsockname()[1]) for each in held]
    for each in held:
        each.close()
    return numbers


def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """What the command does with these arguments, until it exits."""
    return subprocess.run(
        [sys.executable, "-m", "tpuserve", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


class ServeProcess:
    """A running `tpuserve serve`.

    Attributes:
      rest, rpc: its addresses, "127.0.0.1:8501".
      log: what it has said until it was ready.
    """

    def __init__(self, base_path: Path, tag_set: TagSet | None = None) -> None:
        """Starts it, and returns once it is ready."""
        rpc_port, rest_port = free_ports(2)
        self.rest, self.rpc = f"{LOOPBACK}:{rest_port}", f"{LOOPBACK}:{rpc_port}"
        environment = dict(os.environ)
        if tag_set is not None and "tpu" in tag_set:
            environment["TPUSERVE_EMULATED_TPU"] = "1"
        arguments = ["--host", LOOPBACK, f"--port={rpc_port}", "--rest_api_port", str(rest_port)]
        arguments += ["--model_name=half", f"--model_base_path={base_path}"]
        if tag_set is not None:
            arguments += ["--saved_model_tags", ",".join(sorted(tag_set))]
        self._process = subprocess.Popen(
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
        """Sends a signal; the exit status, and what was said after it was ready."""
        self._process.send_signal(number)
        _, said = self._process.communicate(timeout=60)
        return self._process.returncode, said

    def kill(self) -> None:
        """Ends it for certain."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def serving(base_path: Path, tag_set: TagSet | None = None) -> Iterator[ServeProcess]:
    """A running server of the model "half", ended for certain on leaving."""
    server = ServeProcess(base_path, tag_set)
    try:
        yield server
    finally:
        server.kill()
