"""Measures how long a server takes to start, and how much memory it has, with one tiny model.

    python -m benchmarks.serve.lifecycle.start [--rounds 5]

Each round starts `tpuserve serve` with half_plus_two, and a process that only imports TensorFlow,
in alternating order. The benchmark prints the medians of the times until /healthz and until /readyz
answer 200, of the processor time until then, and of the resident and the anonymous memory, with the
ratios to the process that only imports TensorFlow.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.serve.models import save_half_plus_two
from benchmarks.serve.turns import process_cpu_seconds
from server.process import ports

_HOST = "127.0.0.1"
_IMPORT = "import tensorflow; print(flush=True); input()"
# The time between two requests of /healthz or /readyz, in seconds.
_POLL_SECONDS = 0.01
_UNITS = {"health": "s", "ready": "s", "processor": "s", "resident": "MB", "anonymous": "MB"}


def main() -> None:
    """Measure, and print the medians and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as base:
        save_half_plus_two(Path(base) / "1")
        measure_server(Path(base))  # Discard the first figures: this run fills the file cache.
        servers, imports = [], []
        for index in range(rounds):
            for is_server in (index % 2 == 0, index % 2 == 1):
                if is_server:
                    servers.append(measure_server(Path(base)))
                else:
                    imports.append(measure_import())
    print(f"start, {rounds} rounds (load average {os.getloadavg()[0]:.1f})")
    for name, unit in _UNITS.items():
        line = f"  {name}: server {_median(servers, name):.2f} {unit}"
        if name in imports[0]:
            ratio = statistics.median(
                server[name] / alone[name] for server, alone in zip(servers, imports, strict=True)
            )
            line += f", import tensorflow {_median(imports, name):.2f} {unit}, ratio {ratio:.2f}"
        print(line)


def measure_import() -> dict[str, float]:
    """Return the figures of a process that only imports TensorFlow; see `_UNITS`."""
    started = time.monotonic()
    with _running("-c", _IMPORT) as process:
        assert process.stdout is not None
        process.stdout.readline()
        return {"ready": time.monotonic() - started, **_resources(process.pid)}


def measure_server(base_path: Path) -> dict[str, float]:
    """Return the figures of a server that has just become ready; see `_UNITS`."""
    reserved = [ports.bind_port(_HOST, 0, "--port") for _ in range(2)]
    rest, rpc = (int(port.getsockname()[1]) for port in reserved)
    for port in reserved:
        port.close()
    arguments = (f"--host={_HOST}", f"--rest_api_port={rest}", f"--port={rpc}")
    started = time.monotonic()
    with _running(
        "-m", "tpuserve", "serve", f"--model_base_path={base_path}", *arguments
    ) as process:
        figures = {}
        for name, path in (("health", "/healthz"), ("ready", "/readyz")):
            while not _is_ok(f"http://{_HOST}:{rest}{path}"):
                if process.poll() is not None:
                    raise RuntimeError(f"the server has ended with status {process.returncode}")
                time.sleep(_POLL_SECONDS)
            figures[name] = time.monotonic() - started
        return {**figures, **_resources(process.pid)}


@contextlib.contextmanager
def _running(*arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _is_ok(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _resources(pid: int) -> dict[str, float]:
    """Return the processor time, and the resident and the anonymous memory, of a process."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    kilobytes = {name: int(rest.split()[0]) for name, rest in (line.split(":") for line in lines)}
    return {
        "processor": process_cpu_seconds(pid),
        "resident": kilobytes["Rss"] / 1024,
        "anonymous": kilobytes["Anonymous"] / 1024,
    }


def _median(figures: Sequence[Mapping[str, float]], name: str) -> float:
    return statistics.median(figure[name] for figure in figures)


if __name__ == "__main__":
    main()
