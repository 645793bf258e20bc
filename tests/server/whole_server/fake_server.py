"""A server of a fake model in a process of its own."""

import contextlib
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tests import processes

LOOPBACK = processes.LOOPBACK
GOOD, SLOW, DEADLY = '{"inputs": 2}', '{"inputs": 7}', '{"inputs": 13}'
SECONDS = 60


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; the time limit only ends a test that hangs."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.02)


def process_name(pid: int) -> str | None:
    """Return the name of a process; None if the process has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None


class FakeServer:
    """A server of version 3 of the fake model "half".

    Attributes:
      url, predict_url, rpc, socket_path: the addresses of the server.
      log_text: the server's output on standard error so far.
    """

    def __init__(self, directory: Path, **flags: Any) -> None:
        """Start the server, and wait until it is ready."""
        (directory / "models" / "3").mkdir(parents=True, exist_ok=True)
        config = directory / "monitoring.config"
        config.write_text("prometheus_config { enable: true }")
        rpc_port, rest_port = processes.free_ports(2)
        self.url = f"http://{LOOPBACK}:{rest_port}"
        self.predict_url = f"{self.url}/v1/models/half:predict"
        self.rpc = f"{LOOPBACK}:{rpc_port}"
        own = {
            "host": LOOPBACK,
            "port": rpc_port,
            "rest_api_port": rest_port,
            "monitoring_config_file": str(config),
        }
        if "model_config_file" not in flags:
            own |= {"model_name": "half", "model_base_path": str(directory / "models")}
        self.socket_path = str(flags.get("grpc_socket_path", ""))
        # Send standard error to a file: with a pipe, a server that logs much would wait for the
        # test.
        self._log = directory / "log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.server.whole_server.serve_fake"),
                    json.dumps(own | flags),
                ],
                stderr=log,
            )
        while " ready\n" not in self.log_text and '"ready"' not in self.log_text:
            assert self._process.poll() is None, f"not ready, but ended:\n{self.log_text}"
            time.sleep(0.02)

    @property
    def log_text(self) -> str:
        return self._log.read_text()

    @property
    def pid(self) -> int:
        return self._process.pid

    def children(self) -> dict[int, str]:
        """Return process ID → name of each child process of the server."""
        pids: list[int] = []
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            # Ignore a thread that has ended meanwhile.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                pids += map(int, (task / "children").read_text().split())
        names = {pid: process_name(pid) for pid in pids}
        return {pid: name for pid, name in names.items() if name is not None}

    def find(self, name: str) -> int:
        (pid,) = [pid for pid, other in self.children().items() if other == name]
        return pid

    def is_answering(self) -> bool:
        return httpx.post(self.predict_url, content=GOOD).status_code == 200

    def count_requests(self) -> int:
        """Return the number of successful requests on the metrics page."""
        page = httpx.get(f"{self.url}/monitoring/prometheus/metrics", timeout=SECONDS).text
        pattern = r'^:tensorflow:serving:request_count{model_name="half",status="OK"} (\d+)$'
        return int(re.findall(pattern, page, re.MULTILINE)[0])

    def stop(self) -> tuple[int, str]:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(SECONDS), self.log_text

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait()
