"""Runs `tests.trainer.hosts.program` on several hosts, which are processes of this machine."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from tests import processes
from tests.preloaded.process import PreloadedProcess
from tpuserve import devices
from tpuserve.devices import jax_client
from trainer.config import host_addresses

# The time limit of a process, in seconds; it only catches processes that hang.
LIMIT_SECS = 900

_ROOT = Path(__file__).parents[3]


# The type of functions that take the number of a host and the addresses of all hosts, and return
# the environment variables that tell them to the program.
Naming: TypeAlias = Callable[[int, list[str]], dict[str, str]]


def by_tpuserve(index: int, addresses: list[str]) -> dict[str, str]:
    return {
        host_addresses.HOSTS_VARIABLE: ",".join(addresses),
        host_addresses.HOST_INDEX_VARIABLE: str(index),
    }


def by_kubernetes(index: int, addresses: list[str]) -> dict[str, str]:
    return {"TPU_WORKER_HOSTNAMES": ",".join(addresses), "TPU_WORKER_ID": str(index)}


def by_tf_config(index: int, addresses: list[str]) -> dict[str, str]:
    chief, *workers = addresses
    task = {"type": "worker", "index": index - 1} if index else {"type": "chief", "index": 0}
    cluster = {"chief": [chief], "worker": workers}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


def by_workers(index: int, addresses: list[str]) -> dict[str, str]:
    task = {"type": "worker", "index": index}
    return {"TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": task})}


def environment(cores: int) -> dict[str, str]:
    """Return the environment of a process with `cores` PJRT devices of the CPU."""
    flags = f"--xla_force_host_platform_device_count={cores}"
    return {
        **os.environ,
        devices.RUNTIME_VARIABLE: "pjrt",
        jax_client.PLATFORM_VARIABLE: "cpu",
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}",
    }


@contextmanager
def hosts(
    count: int, cores: int, *arguments: object, naming: Naming = by_tpuserve
) -> Iterator[list["subprocess.Popen[str]"]]:
    """Start the program on several hosts; kill all processes at the end of the context.

    Args:
      count: the number of hosts.
      cores: the number of devices of each host.
      arguments: the program's arguments.
      naming: names the hosts to the program.
    """
    addresses = [f"{processes.LOOPBACK}:{port}" for port in processes.free_ports(count)]
    command = [sys.executable, "-m", "tests.trainer.hosts.program", *map(str, arguments)]
    with ExitStack() as ending:
        started: list[subprocess.Popen[str]] = []
        for index in range(count):
            process = PreloadedProcess(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=_ROOT,
                env={**environment(cores), **naming(index, addresses)},
            )
            ending.callback(process.communicate)
            ending.callback(process.kill)
            started.append(process)
        yield started


def results(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """Wait until a process ends with status 0; return all values that it has reported."""
    output, errors = process.communicate(timeout=LIMIT_SECS)
    assert process.returncode == 0, errors
    return read_report(output)


def read_report(output: str) -> dict[str, Any]:
    """Return the values in the JSON lines of an output; later values replace earlier ones."""
    lines = (line for line in output.splitlines() if line.startswith("{"))
    return {name: value for line in lines for name, value in json.loads(line).items()}


def wait_for_steps(process: "subprocess.Popen[str]", loops: int) -> int:
    """Read output until a number of loops has been reported; return the last global step."""
    assert process.stdout is not None
    step = 0
    for line in process.stdout:
        step = read_report(line).get("step", step)
        loops -= "step" in read_report(line)
        if not loops:
            return step
    raise AssertionError(f"it ended with {process.wait()}: {process.communicate()[1]}")
