"""Measures what the clients of a slow model do to the latency of a quick model on the same server.

    python -m benchmarks.serve.attacks.neighbours [--slow_clients 500] [--rounds 3]

A request to the slow model takes 20 ms of processor time in TensorFlow, a request to the quick
model 1 ms. The server runs as the command `tpuserve serve`, and each group of clients in a process
of its own. In each round the quick model is measured alone and beside the clients of the slow
model, over REST and over gRPC, with batching and without. The goal is a p99 beside the slow model
of less than 3 times the p99 alone.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from server.process import ports

HOST = "127.0.0.1"
GOAL = 3.0
MILLISECONDS = {"quick": 1.0, "slow": 20.0}
FACES = ("rest", "grpc")
BATCHING = {"unbatched": ("--enable_batching=false",), "batched": ("--enable_batching",)}
# Flags with which the server accepts all clients, although they come from one address.
LIMITS = ("--max_requests_in_flight=2000", "--max_requests_in_flight_per_peer=2000")
_CALIBRATION_PRODUCTS = 200
_UNITS = 512


@dataclass(frozen=True)
class RunningServer:
    """A server in a subprocess: its port by API ("rest" or "grpc"), and its process ID."""

    ports: dict[str, int]
    pid: int


def save_model(directory: Path, milliseconds: float) -> None:
    """Export a model with input x and output y, both float32 of shape [rows].

    For one row the model takes the given processor time: it multiplies 512 numbers by a matrix as
    often as that takes.
    """
    import tensorflow.compat.v1 as tf

    one_thread = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    with tf.Graph().as_default(), tf.Session(config=one_thread) as session:
        x, y = _build_products(tf, _CALIBRATION_PRODUCTS)
        seconds = []
        for _ in range(30):
            start = time.process_time()
            session.run(y, {x: [1.0]})
            seconds.append(time.process_time() - start)
    products = milliseconds / 1000 / statistics.median(seconds) * _CALIBRATION_PRODUCTS
    with tf.Graph().as_default(), tf.Session() as session:
        x, y = _build_products(tf, round(products))
        tf.saved_model.simple_save(session, str(directory), {"x": x}, {"y": y})


def _build_products(tf: Any, number: int) -> tuple[Any, Any]:
    x = tf.placeholder(tf.float32, [None], name="x")
    weights = tf.eye(_UNITS) * 0.999
    rows = x[:, None] * tf.ones([1, _UNITS])
    for _ in range(number):
        rows = tf.matmul(rows, weights)
    return x, rows[:, 0]


@contextmanager
def running_server(directory: Path, flags: Sequence[str]) -> Iterator[RunningServer]:
    """Serve the models below a directory with the command `tpuserve serve`."""
    with ports.bind_port(HOST, 0, "") as grpc, ports.bind_port(HOST, 0, "") as rest:
        numbers = {"grpc": grpc.getsockname()[1], "rest": rest.getsockname()[1]}
    config = directory / "models.config"
    config.write_text(
        "model_config_list {"
        + "".join(
            f"config {{ name: '{name}' base_path: '{directory / name}' "
            f"model_platform: 'tensorflow' }}"
            for name in MILLISECONDS
        )
        + "}"
    )
    command = [sys.executable, "-m", "tpuserve", "serve", f"--model_config_file={config}"]
    command += [f"--port={numbers['grpc']}", f"--rest_api_port={numbers['rest']}"]
    process = subprocess.Popen(
        [*command, f"--host={HOST}", *LIMITS, *flags],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if line.endswith("ready\n"):
                break
        else:
            raise RuntimeError("the server has ended")
        yield RunningServer(numbers, process.pid)
    finally:
        process.kill()
        process.communicate()


@contextmanager
def running_clients(
    server: RunningServer, face: str, model: str, clients: int, seconds: float
) -> "Iterator[subprocess.Popen[str]]":
    """Run clients in a subprocess, which send requests while the `with` body runs."""
    command = [sys.executable, "-m", "benchmarks.serve.attacks.neighbours_client"]
    arguments = [face, server.ports[face], model, clients, seconds]
    process = subprocess.Popen(
        [*command, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def measure_quick(
    server: RunningServer, face: str, clients: int, seconds: float
) -> tuple[float, float]:
    """Return the p50 and the p99 of the quick model, in milliseconds."""
    with running_clients(server, face, "quick", clients, seconds) as process:
        result = json.loads(process.communicate()[0])
    assert not result["refused"], result["refused"]
    latencies = statistics.quantiles(result["latencies_ms"], n=100, method="inclusive")
    return latencies[49], latencies[98]


def measure_beside(
    server: RunningServer, face: str, arguments: argparse.Namespace
) -> tuple[float, float, str]:
    """Measure the quick model while clients use the slow model.

    Returns:
      The quick model's p50 and p99 in milliseconds, and a phrase with the numbers of answers and
      of refusals of the slow model.
    """
    with running_clients(server, face, "slow", arguments.slow_clients, 0) as slow:
        # Wait until the queue of the slow model is full.
        time.sleep(arguments.fill_seconds)
        p50, p99 = measure_quick(server, face, arguments.quick_clients, arguments.seconds)
        result = json.loads(slow.communicate("")[0])
    fate = f"{len(result['latencies_ms'])} slow answers, {result['refused']} refused"
    return p50, p99, fate


def main() -> None:
    """Measure, and print the latencies and the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="duration of a measurement")
    parser.add_argument("--fill_seconds", type=float, default=3)
    parser.add_argument("--slow_clients", type=int, default=500)
    parser.add_argument("--quick_clients", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=(), help="for example: rest batched")
    parser.add_argument("--flag", action="append", default=[], help="a flag of the server")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        for name, milliseconds in MILLISECONDS.items():
            save_model(Path(temporary) / name / "1", milliseconds)
        for batching, flags in BATCHING.items():
            if set(arguments.only) & set(BATCHING) - {batching}:
                continue
            with running_server(Path(temporary), [*flags, *arguments.flag]) as server:
                for face in FACES:
                    if not set(arguments.only) & set(FACES) - {face}:
                        print_rounds(f"{face}, {batching}", server, face, arguments)


def print_rounds(
    title: str, server: RunningServer, face: str, arguments: argparse.Namespace
) -> None:
    """Measure the quick model alone and beside the slow model in turns, and print the rounds."""
    measure_quick(server, face, arguments.quick_clients, 2)
    print(f"{title} (load average {os.getloadavg()[0]:.1f})")
    ratios = []
    for _ in range(arguments.rounds):
        alone50, alone99 = measure_quick(server, face, arguments.quick_clients, arguments.seconds)
        beside50, beside99, fate = measure_beside(server, face, arguments)
        ratios.append(beside99 / alone99)
        print(
            f"  alone p50 {alone50:.1f} p99 {alone99:.1f} ms, beside p50 {beside50:.1f} "
            f"p99 {beside99:.1f} ms, p99 ratio {ratios[-1]:.1f} ({fate})",
            flush=True,
        )
    print(f"  median p99 ratio {statistics.median(ratios):.2f}, goal below {GOAL:g}", flush=True)


if __name__ == "__main__":
    main()
