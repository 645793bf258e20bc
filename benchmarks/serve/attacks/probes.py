"""Measures how long probes and small requests wait while clients attack a server.

    python -m benchmarks.serve.attacks.probes [--seconds=10] [--server=tpuserve] [ATTACK]...

Serves a tiny model with the command `tpuserve serve`, attacks it, and meanwhile sends health checks
over REST and gRPC and small requests, each 50 times a second on a connection of its own. Prints
their latencies in milliseconds, the statuses of the attack's requests, and the largest memory of
the server's processes together. --server names another installation of the server to compare with.
"""

import argparse
import collections
import contextlib
import http.client
import multiprocessing
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.serve.attacks.attack_requests import ATTACKS, PREDICT
from server.process import ports

_PROBE_SECONDS = 0.02
_PROBES: dict[str, tuple[str, str, bytes | None]] = {
    "/healthz": ("GET", "/healthz", None),
    "/readyz": ("GET", "/readyz", None),
    "predict": ("POST", PREDICT, b'{"instances": [1, 2, 5]}'),
}


def main() -> None:
    """Run the attacks that the command line names, or all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=", ".join(ATTACKS))
    parser.add_argument("--seconds", type=float, default=10, help="length of each attack")
    parser.add_argument("--server", default=str(Path(sys.executable).with_name("tpuserve")))
    parser.add_argument("--flags", default="", help="further flags of the server")
    options = parser.parse_args()
    names = options.attacks or list(ATTACKS)
    header = " ".join(f"{name + ' p50/p99/max':>24}" for name in (*_PROBES, "gRPC health"))
    print(f"{'attack':20} {header} {'memory':>9}  statuses", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        _export(Path(directory) / "half" / "1")
        for name in names:
            with _serve(options.server, Path(directory) / "half", options.flags) as server:
                _report(name, server, options.seconds)


def _export(directory: Path) -> None:
    # Export in another process, so that TensorFlow creates no threads in this process, which starts
    # further processes.
    program = "import sys, pathlib; from benchmarks.serve import models; "
    program += "models.save_half_plus_two(pathlib.Path(sys.argv[1]))"
    subprocess.run(
        [sys.executable, "-c", program, str(directory)], check=True, stderr=subprocess.DEVNULL
    )


@contextmanager
def _serve(command: str, model: Path, flags: str) -> Iterator[tuple[int, int, int]]:
    """Serve a model; yield the process ID, the REST port and the gRPC port."""
    sockets = [ports.bind_port("127.0.0.1", 0, "--port") for _ in range(2)]
    rest_port, grpc_port = (listener.getsockname()[1] for listener in sockets)
    for listener in sockets:
        listener.close()
    arguments = [
        "serve",
        "--model_name=half",
        f"--model_base_path={model}",
        f"--rest_api_port={rest_port}",
        f"--port={grpc_port}",
        "--host=127.0.0.1",
        "--enable_grpc_healthcheck_service",
        *shlex.split(flags),
    ]
    server = subprocess.Popen([command, *arguments], stderr=subprocess.DEVNULL)
    try:
        while _ask(rest_port, "GET", "/readyz") != 200:
            time.sleep(0.1)
        yield server.pid, rest_port, grpc_port
    finally:
        server.kill()
        server.wait()


def _ask(port: int, method: str, path: str) -> int:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request(method, path)
        return connection.getresponse().status
    except OSError:
        return 0


def _report(name: str, server: tuple[int, int, int], seconds: float) -> None:
    pid, rest_port, grpc_port = server
    context = multiprocessing.get_context("spawn")
    results: Any = context.Queue()
    prober = context.Process(target=_probe, args=(rest_port, grpc_port, seconds, results))
    attacker = context.Process(target=_attack, args=(name, rest_port, grpc_port, seconds, results))
    memory = _PeakMemory(pid)
    for process in (prober, attacker):
        process.start()
    answers = dict(results.get() for _ in range(2))
    for process in (prober, attacker):
        process.kill()
        process.join()
    columns = [_format_latencies(latencies) for latencies in answers["probes"].values()]
    statuses = " ".join(f"{key}:{count}" for key, count in sorted(answers["attack"].items()))
    row = " ".join(f"{column:>24}" for column in columns)
    print(f"{name:20} {row} {memory.stop() / 1e6:6.0f} MB  {statuses}", flush=True)


def _format_latencies(latencies: list[float]) -> str:
    if not latencies:
        return "none"
    ordered = sorted(latencies)
    p50, p99 = (ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.99))
    return f"{p50 * 1e3:.1f}/{p99 * 1e3:.1f}/{ordered[-1] * 1e3:.0f}"


def _probe(rest_port: int, grpc_port: int, seconds: float, results: Any) -> None:
    latencies: dict[str, list[float]] = {name: [] for name in (*_PROBES, "gRPC health")}
    calls: dict[str, Callable[[], object]] = {
        name: _rest_caller(rest_port, *probe) for name, probe in _PROBES.items()
    }
    calls["gRPC health"] = _grpc_caller(grpc_port)
    for call in calls.values():
        call()
    time.sleep(1)  # Wait a little until the attack has begun.
    end = time.monotonic() + seconds
    threads = [
        threading.Thread(target=_measure, args=(call, end, latencies[name]))
        for name, call in calls.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put(("probes", latencies))


def _measure(call: Callable[[], object], end: float, latencies: list[float]) -> None:
    while (started := time.monotonic()) < end:
        call()
        elapsed = time.monotonic() - started
        latencies.append(elapsed)
        time.sleep(max(0, _PROBE_SECONDS - elapsed))


def _rest_caller(port: int, method: str, path: str, body: bytes | None) -> Callable[[], object]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def call() -> None:
        try:
            connection.request(method, path, body)
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            connection.close()

    return call


def _grpc_caller(port: int) -> Callable[[], object]:
    import grpc

    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    return lambda: _ignore_errors(channel.unary_unary("/grpc.health.v1.Health/Check"))


def _ignore_errors(check: Any) -> None:
    import grpc

    with contextlib.suppress(grpc.RpcError):
        check(b"", timeout=120)


def _attack(name: str, rest_port: int, grpc_port: int, seconds: float, results: Any) -> None:
    statuses: collections.Counter[str] = collections.Counter()
    # Attack a little longer than the probes measure.
    end = time.monotonic() + seconds + 2
    ATTACKS[name](("127.0.0.1", rest_port), ("127.0.0.1", grpc_port), end, statuses)
    results.put(("attack", dict(statuses)))
    time.sleep(60)


class _PeakMemory:
    """The largest memory of a process and its descendants together, in bytes."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peak = 0
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> int:
        self._has_ended.set()
        self._thread.join()
        return self._peak

    def _watch(self) -> None:
        while not self._has_ended.wait(0.05):
            self._peak = max(self._peak, _memory_bytes(self._pid))


def _memory_bytes(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for task in Path(f"/proc/{pid}/task").iterdir():
            if task.name != str(pid):
                children += (task / "children").read_text().split()
    except OSError:
        return 0
    kilobytes = re.findall(r"^VmRSS:\s+(\d+)", text, re.M)
    return 1024 * sum(map(int, kilobytes)) + sum(_memory_bytes(int(child)) for child in children)


if __name__ == "__main__":
    main()
