"""Compares a server with frontend processes with a server of one process, in alternating turns.

    python -m benchmarks.serve.settings.processes [--frontend-processes 2] [--rounds 5]

Both run `tpuserve serve`. Printed are requests/s over REST of half_plus_two and of images as JSON,
with 8 clients and with 1 client, and the processor time of all processes per request,
which other programs of the machine change less. Then the 99th percentile and the maximum of the
times of health checks, over REST and gRPC: while 8 clients send images, and while a version of a
model with 300 MB of variables is loaded.

Needs h2load (Debian: nghttp2-client).
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc

from benchmarks.serve import models, turns

_HOST = "127.0.0.1"
_FIRST_PORT = 18_600
_HALF = "half"
_IMAGE = "image"
_LARGE = "large"
_LARGE_NUMBERS = 75 << 20
_PROBE_SECONDS = 0.01
_SMALL_BODY = b'{"instances": [1.0, 2.0, 5.0]}'


@dataclass(frozen=True)
class Load:
    """The requests of one measurement.

    Attributes:
      title: The title of the figures.
      model: The name of the model.
      clients: The number of clients that send requests at the same time.
      requests: The number of requests.
    """

    title: str
    model: str
    clients: int
    requests: int


LOADS = (
    Load("half_plus_two, 8 clients", _HALF, 8, 20_000),
    Load("half_plus_two, 1 client", _HALF, 1, 5_000),
    Load("image of 224x224x3 as JSON, 8 clients", _IMAGE, 8, 300),
)


@dataclass(frozen=True)
class Side:
    """A running server.

    Attributes:
      port: The port of the REST API.
      grpc_port: The port of gRPC.
      pid: The process ID of its first process.
      large_model: The base path of the model that `measure_loading` loads.
    """

    port: int
    grpc_port: int
    pid: int
    large_model: Path

    def url(self, model: str) -> str:
        """Return the URL of predict."""
        return f"http://{_HOST}:{self.port}/v1/models/{model}:predict"

    def cpu_seconds(self) -> float:
        """Return the processor time of all processes of the server so far, in seconds."""
        return turns.cpu_seconds(self.pid)


def save_image_mean(directory: Path) -> None:
    """Export a model that returns the mean color of images, shape [None, 224, 224, 3]."""
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None, 224, 224, 3], name="x")
        y = tf.reduce_mean(x, axis=[1, 2])
        tf.saved_model.simple_save(session, str(directory), {"x": x}, {"y": y})


def save_large(directory: Path) -> None:
    """Export y = x + the first of 75 M numbers, which take 300 MB; shape [None]."""
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None], name="x")
        numbers = tf.get_variable("numbers", [_LARGE_NUMBERS], use_resource=True)
        session.run(tf.global_variables_initializer())
        tf.saved_model.simple_save(session, str(directory), {"x": x}, {"y": x + numbers[0]})


@contextmanager
def serving(directory: Path, port: int, frontend_processes: int) -> Iterator[Side]:
    """Run a server of the models below a directory, and stop it on exit.

    Args:
      directory: The directory of the models, in which a directory for this server is created.
      port: The port of the REST API; the next one is that of gRPC.
      frontend_processes: The number of frontend processes.
    """
    large_model = directory / str(port) / _LARGE
    _link_large(directory, large_model / "1")
    config = directory / f"{port}.config"
    listed = "".join(
        f"config {{ name: '{path.name}' base_path: '{path}' model_platform: 'tensorflow' }}"
        for path in (directory / _HALF, directory / _IMAGE, large_model)
    )
    config.write_text(f"model_config_list {{ {listed} }}")
    command = [sys.executable, "-m", "tpuserve", "serve", f"--host={_HOST}"]
    command += [f"--rest_api_port={port}", f"--port={port + 1}", f"--model_config_file={config}"]
    command += ["--enable_grpc_healthcheck_service", "--file_system_poll_wait_seconds=1"]
    command.append(f"--frontend_processes={frontend_processes}")
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if line.endswith(" ready\n"):
                break
        # Read the rest of the log in a thread, because the server would block on a full pipe.
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield Side(port, port + 1, process.pid, large_model)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def measure(load: Load, body: Path, side: Side) -> dict[str, float]:
    """Return requests/s, and microseconds of processor time of the server per request."""
    before = side.cpu_seconds()
    command = ["h2load", "--h1", "-n", str(load.requests), "-c", str(load.clients), "-d", str(body)]
    finished = subprocess.run(
        [*command, side.url(load.model)], capture_output=True, text=True, check=True
    )
    cpu = (side.cpu_seconds() - before) / load.requests * 1e6
    match = re.search(r"([\d.]+) req/s", finished.stdout)
    assert match is not None
    assert f"{load.requests} 2xx" in finished.stdout, finished.stdout
    return {"requests/s": float(match[1]), "us of processor time per request": cpu}


@contextmanager
def probing(side: Side) -> Iterator[dict[str, float]]:
    """Send health checks in the body of the `with` statement.

    Yields:
      A dictionary that has the figures after the body: unit → milliseconds.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    channel = grpc.insecure_channel(f"{_HOST}:{side.grpc_port}")
    check_health = channel.unary_unary("/grpc.health.v1.Health/Check")

    def check_rest() -> None:
        with opener.open(f"http://{_HOST}:{side.port}/healthz", timeout=60) as response:
            assert response.status == 200

    def check_grpc() -> None:
        assert check_health(b"", timeout=60) == b"\x08\x01"

    latencies: dict[str, list[float]] = {"/healthz": [], "gRPC health": []}
    is_over = threading.Event()

    def probe(name: str, check: Callable[[], None]) -> None:
        while not is_over.is_set():
            started = time.perf_counter()
            check()
            latencies[name].append((time.perf_counter() - started) * 1000)
            is_over.wait(_PROBE_SECONDS)

    check_grpc()
    threads = [
        threading.Thread(target=probe, args=arguments)
        for arguments in zip(latencies, (check_rest, check_grpc), strict=True)
    ]
    for thread in threads:
        thread.start()
    figures: dict[str, float] = {}
    yield figures
    is_over.set()
    for thread in threads:
        thread.join()
    channel.close()
    for name, times in latencies.items():
        figures[f"ms, p99 of {name}"] = sorted(times)[int(len(times) * 0.99)]
        figures[f"ms, maximum of {name}"] = max(times)


def measure_probes(load: Load, body: Path, side: Side) -> dict[str, float]:
    """Return the times of health checks under a load."""
    with probing(side) as figures:
        measure(load, body, side)
    return figures


def measure_loading(directory: Path, side: Side) -> dict[str, float]:
    """Return the times of health checks while a further version of the large model is loaded."""
    version = max(map(int, os.listdir(side.large_model))) + 1
    with probing(side) as figures:
        _link_large(directory, side.large_model / str(version))
        url = f"http://{_HOST}:{side.port}/v1/models/{_LARGE}/versions/{version}"
        while not _is_available(url):
            time.sleep(0.05)
    return figures


def _is_available(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=60) as response:
            return b"AVAILABLE" in response.read()
    except urllib.error.HTTPError:
        return False


def main() -> None:
    """Measure, and print the figures and their ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--frontend-processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if shutil.which("h2load") is None:
        sys.exit("h2load is not installed. Install it: apt-get install nghttp2-client")
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        directory = Path(temporary)
        bodies = _write_inputs(directory)
        with_processes, without = (
            stack.enter_context(serving(directory, _FIRST_PORT + 2 * index, count))
            for index, count in enumerate((arguments.frontend_processes, 0))
        )
        loading = partial(measure_loading, directory)
        comparisons = turns.compare_in_turns(with_processes, without, loading, arguments.rounds)
        turns.print_comparisons("probes while 300 MB are loaded", comparisons)
        for load in LOADS:
            function = partial(measure, load, bodies[load.model])
            for side in (with_processes, without):
                function(side)
            comparisons = turns.compare_in_turns(
                with_processes, without, function, arguments.rounds
            )
            turns.print_comparisons(load.title, comparisons)
        probes = partial(measure_probes, LOADS[-1], bodies[_IMAGE])
        comparisons = turns.compare_in_turns(with_processes, without, probes, arguments.rounds)
        turns.print_comparisons("probes while images are parsed", comparisons)


def _write_inputs(directory: Path) -> dict[str, Path]:
    models.save_half_plus_two(directory / _HALF / "1")
    save_image_mean(directory / _IMAGE / "1")
    save_large(directory / _LARGE)
    pixel = b"[0.1234, 0.5678, 0.9012]"
    row = b"[" + b", ".join([pixel] * 224) + b"]"
    image = b'{"instances": [[' + b", ".join([row] * 224) + b"]]}"
    bodies = {}
    for name, body in ((_HALF, _SMALL_BODY), (_IMAGE, image)):
        bodies[name] = directory / f"{name}.json"
        bodies[name].write_bytes(body)
    return bodies


def _link_large(directory: Path, version: Path) -> None:
    """Create a further version of the large model from hard links to its files."""
    incomplete = version.with_name(f"{version.name}.incomplete")
    shutil.copytree(directory / _LARGE, incomplete, copy_function=os.link)
    incomplete.rename(version)


if __name__ == "__main__":
    main()
