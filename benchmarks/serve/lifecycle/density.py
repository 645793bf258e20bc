"""Measures a server of many small models: start, memory per model, and the page of its metrics.

    python -m benchmarks.serve.lifecycle.density [--models 1 200 1000]

Each model is a copy of half_plus_two, and is asked once over REST. The server is `tpuserve serve`
with a model config file.
"""

import argparse
import http.client
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.serve import models
from benchmarks.serve.lifecycle.memory import resident_megabytes
from tests.processes import LOOPBACK, free_ports

_BODY = b'{"instances": [1.0, 2.0, 5.0]}'
_SCRAPES = 5


def main() -> None:
    """Measure servers with each number of models, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, nargs="+", default=[1, 200, 1000])
    arguments = parser.parse_args()
    print("models  ready s  MB  MB/model  page KB  ms   gzip KB  ms   answers")
    first: tuple[int, float] | None = None
    for count in arguments.models:
        with tempfile.TemporaryDirectory() as base:
            first = measure(Path(base), count, first)


def measure(base: Path, count: int, first: tuple[int, float] | None) -> tuple[int, float]:
    """Measure a server with `count` models, and print the line.

    Args:
      base: an empty directory.
      count: the number of models.
      first: the number of models and the MiB of the first server; None for the first.

    Returns:
      `first`, or the number of models and the MiB of this server.
    """
    models.save_half_plus_two(base / "half" / "1")
    names = [f"model-{number}" for number in range(count)]
    config = "config {{ name: '{}' base_path: '{}/half' model_platform: 'tensorflow' }}"
    configs = (config.format(name, base) for name in names)
    config_file = base / "models.conf"
    config_file.write_text("model_config_list {" + "\n".join(configs) + "}")
    rpc_port, rest_port = free_ports(2)
    begin = time.perf_counter()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "tpuserve", "serve", f"--host={LOOPBACK}"),
            *(f"--port={rpc_port}", f"--rest_api_port={rest_port}"),
            f"--model_config_file={config_file}",
        ],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    try:
        client = _connect(process, rest_port)
        ready_seconds = time.perf_counter() - begin
        answers = sum(
            _ask(client, "POST", f"/v1/models/{name}:predict")[0] == 200 for name in names
        )
        megabytes = resident_megabytes(process.pid)
        text_bytes, text_ms = _scrape(client, "identity")
        gzip_bytes, gzip_ms = _scrape(client, "gzip")
    finally:
        process.kill()
        process.wait()
    first = first or (count, megabytes)
    each = (megabytes - first[1]) / (count - first[0]) if count > first[0] else float("nan")
    print(
        f"{count:6}  {ready_seconds:7.1f} {megabytes:4.0f}  {each:7.2f} {text_bytes / 1e3:8.0f} "
        f"{text_ms:4.0f} {gzip_bytes / 1e3:8.0f} {gzip_ms:4.0f}   {answers}",
        flush=True,
    )
    return first


def _connect(process: "subprocess.Popen[bytes]", port: int) -> http.client.HTTPConnection:
    """Wait until all models are available, and return a connection."""
    client = http.client.HTTPConnection(LOOPBACK, port, timeout=120)
    while process.poll() is None:
        try:
            status, body = _ask(client, "GET", "/v1/models")
            if status == 200 and b"LOADING" not in body and b"START" not in body:
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
