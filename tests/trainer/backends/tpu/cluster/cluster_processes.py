"""Processes of a cluster that train in one session, all of them on this machine."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests import processes
from tests.preloaded.process import PreloadedProcess
from tpuserve import devices

# Seconds; only to catch processes that hang.
LIMIT_SECS = 900

_ROOT = Path(__file__).parents[5]


def addresses(count: int) -> list[str]:
    """Free addresses for so many tasks; the first is for the chief."""
    return [f"{processes.LOOPBACK}:{port}" for port in processes.free_ports(count)]


def tf_config(tasks: list[str], job: str, index: int) -> dict[str, str]:
    """The variable that tells a process its task."""
    cluster = {"chief": tasks[:1], "worker": tasks[1:]}
    task = {"type": job, "index": index}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


def start(*arguments: object, cores: str = "8", **environment: str) -> "subprocess.Popen[str]":
    """Start the program with an emulated TPU."""
    return PreloadedProcess(
        [sys.executable, "-m", "tests.trainer.backends.tpu.cluster.program", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=_ROOT,
        env={**os.environ, devices.EMULATION_VARIABLE: cores, **environment},
    )
