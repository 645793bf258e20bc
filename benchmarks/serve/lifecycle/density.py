"""Measures a server of many small models: start, memory, threads, first answers, response times.

    python -m benchmarks.serve.lifecycle.density [--models 1 10 200] [--seconds 10] [-- FLAG...]

Each model is a copy of half_plus_two. The server is `tpuserve serve` with a model config file, and
with the flags after "--", such as --lazy_load. "first ms" is the median and the largest time of the
first answers of the models, over REST. One more model is then asked 100 times in a second: the
benchmark prints the 99th percentile and the largest of its response times while the other models
are idle, and while one of them is loaded again and again. Both are measured in turns; "ratio" is
the median of the ratios of the two percentiles of each turn. A response time starts when the
request is due.
"""

import argparse
import http.client
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.serve import models
from benchmarks.serve.lifecycle.memory import resident_megabytes
from benchmarks.serve.lifecycle.swap import Client
from tests.processes import LOOPBACK, free_ports

_BODY = b'{"instances": [1.0, 2.0, 5.0]}'
_SCRAPES = 5
_TURNS = 5
_INTERVAL_SECONDS = 0.01
_ASKED, _RELOADED = "asked", "reloaded"
# The number of loads before the response times during loads are measured: the first takes longer.
_FIRST_LOADS = 3


def main() -> None:
    """Measure servers with each number of models, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, nargs="+", default=[1, 10, 200, 1000])
    parser.add_argument("--seconds", type=float, default=10, help="of all turns with idle models")
    parser.add_argument("flags", nargs="*", help="flags of the server, after --")
    arguments = parser.parse_args()
    print(
        "models  ready s  MB  MB/model threads  first ms  max  p99 ms  max  p99 at loads  max  "
        "ratio loads  page KB  ms   gzip KB  ms   answers"
    )
    first: tuple[int, float] | None = None
    for count in arguments.models:
        with tempfile.TemporaryDirectory() as base:
            first = measure(Path(base), count, first, arguments.seconds, arguments.flags)


def measure(
    base: Path,
    count: int,
    first: tuple[int, float] | None,
    seconds: float,
    flags: Sequence[str],
) -> tuple[int, float]:
    """Measure a server with `count` models, and print the line.

    Args:
      base: an empty directory.
      count: the number of models, beside the two that are asked and loaded again.
      first: the number of models and the MiB of the first server; None for the first.
      seconds: how long to ask while the other models are idle, and while one is loaded.
      flags: further flags of the server.

    Returns:
      `first`, or the number of models and the MiB of this server.
    """
    models.save_half_plus_two(base / "half" / "1")
    names = [f"model-{number}" for number in range(count)]
    config = "config {{ name: '{}' base_path: '{}/half' model_platform: 'tensorflow' }}"
    configs = (config.format(name, base) for name in (*names, _ASKED, _RELOADED))
    config_file = base / "models.conf"
    config_file.write_text("model_config_list {" + "\n".join(configs) + "}")
    rpc_port, rest_port = free_ports(2)
    begin = time.perf_counter()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "tpuserve", "serve", f"--host={LOOPBACK}"),
            *(f"--port={rpc_port}", f"--rest_api_port={rest_port}"),
            *(f"--model_config_file={config_file}", "--enable_model_control", *flags),
        ],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    try:
        client = _connect(process, rest_port)
        ready_seconds = time.perf_counter() - begin
        first_ms = [_time_first(client, name) for name in names]
        megabytes = resident_megabytes(process.pid)
        num_threads = len(os.listdir(f"/proc/{process.pid}/task"))
        for _ in range(_FIRST_LOADS):
            _load_again(client)
        idle, loading, num_loads = [], [], 0
        for _ in range(_TURNS):
            times, _ = _ask_for(rest_port, seconds / _TURNS, partial(_rest, client))
            idle.append(times)
            times, loads = _ask_for(rest_port, seconds / _TURNS, partial(_load_again, client))
            loading.append(times)
            num_loads += loads
        text_bytes, text_ms = _scrape(client, "identity")
        gzip_bytes, gzip_ms = _scrape(client, "gzip")
    finally:
        process.kill()
        process.wait()
    first = first or (count, megabytes)
    each = (megabytes - first[1]) / (count - first[0]) if count > first[0] else float("nan")
    print(
        f"{count:6}  {ready_seconds:7.1f} {megabytes:4.0f}  {each:7.2f} {num_threads:7} "
        f"{statistics.median(first_ms):9.1f} {max(first_ms):4.0f} "
        f"{_percentile(sum(idle, [])):7.1f} {max(map(max, idle)):4.0f} "
        f"{_percentile(sum(loading, [])):13.1f} {max(map(max, loading)):4.0f} "
        f"{statistics.median(map(_divide_percentiles, loading, idle)):6.2f} {num_loads:5} "
        f"{text_bytes / 1e3:8.0f} {text_ms:4.0f} {gzip_bytes / 1e3:8.0f} {gzip_ms:4.0f}   "
        f"{len(first_ms)}",
        flush=True,
    )
    return first


def _time_first(client: http.client.HTTPConnection, name: str) -> float:
    """Return the milliseconds of a model's first answer."""
    begin = time.perf_counter()
    _predict(client, name)
    return (time.perf_counter() - begin) * 1e3


def _predict(client: http.client.HTTPConnection, name: str) -> None:
    status, body = _ask(client, "POST", f"/v1/models/{name}:predict")
    if status != 200:
        raise RuntimeError(f"{name}: {status} {body!r}")


def _rest(client: http.client.HTTPConnection) -> None:
    """Wait a little, and keep the connection open."""
    time.sleep(0.2)
    _ask(client, "GET", "/healthz")


def _load_again(client: http.client.HTTPConnection) -> None:
    """Unload a model, and load it again."""
    for operation in ("unload", "load"):
        status, body = _ask(client, "POST", f"/v2/repository/models/{_RELOADED}/{operation}")
        if status != 200:
            raise RuntimeError(f"{operation}: {status} {body!r}")


def _ask_for(port: int, seconds: float, beside: Callable[[], None]) -> tuple[list[float], int]:
    """Ask a model at a constant rate, and call a function again and again at the same time.

    Returns:
      The response times in milliseconds, and the number of calls.
    """
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=120)
    asking = Client("REST", partial(_predict, connection, _ASKED))
    for _ in range(100):
        asking.send_request()
    is_over, calls, end = threading.Event(), 0, time.perf_counter() + seconds
    thread = threading.Thread(target=asking.send_at_rate, args=(_INTERVAL_SECONDS, is_over))
    thread.start()
    while time.perf_counter() < end:
        beside()
        calls += 1
    is_over.set()
    thread.join()
    connection.close()
    if asking.failures:
        raise RuntimeError(f"{len(asking.failures)} requests failed: {asking.failures[0]}")
    return [response * 1e3 for _, response in asking.response_times], calls


def _percentile(times: list[float]) -> float:
    return statistics.quantiles(times, n=100)[98]


def _divide_percentiles(times: list[float], others: list[float]) -> float:
    return _percentile(times) / _percentile(others)


def _connect(process: "subprocess.Popen[bytes]", port: int) -> http.client.HTTPConnection:
    """Wait until the server is ready, and return a connection."""
    client = http.client.HTTPConnection(LOOPBACK, port, timeout=120)
    while process.poll() is None:
        try:
            status, _ = _ask(client, "GET", "/readyz")
            if status == 200:
                return client
        except OSError:
            client.close()
        time.sleep(0.1)
    raise RuntimeError(f"the server has ended with status {process.returncode}")


def _ask(client: http.client.HTTPConnection, method: str, path: str) -> tuple[int, bytes]:
    client.request(method, path, _BODY if method == "POST" else None)
    reply = client.getresponse()
    return reply.status, reply.read()


def _scrape(client: http.client.HTTPConnection, encoding: str) -> tuple[int, float]:
    """Return the bytes of the metrics as they are sent, and the median milliseconds to get them."""
    times = []
    for _ in range(_SCRAPES):
        # The server pauses between builds of the page.
        time.sleep(1)
        begin = time.perf_counter()
        client.request("GET", "/metrics", headers={"Accept-Encoding": encoding})
        body = client.getresponse().read()
        times.append((time.perf_counter() - begin) * 1e3)
    return len(body), statistics.median(times)


if __name__ == "__main__":
    main()
