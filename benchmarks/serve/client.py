"""Compares tpuserve.client with bare libraries, and tpuserve bench with wrk and perf_analyzer.

    python -m benchmarks.serve.client [--rounds 7] [--calls 500] [--seconds 2] [--clients 4]

The server is `tpuserve serve` with half-plus-two and three numbers per request. The bare libraries
send the same requests and decode the same arrays by hand: httpx with orjson, grpcio with the
compiled messages. All sides take turns, call by call, so that other programs of the machine affect
them equally. Each ratio compares the two sides in one round.

Import times are processor times of new processes, less that of a process that imports nothing.

wrk is Debian's package wrk. perf_analyzer is in the wheel tritonclient 2.50.0; the variable
TPUSERVE_PERF_ANALYZER has its path, unless it is on the PATH. A program that is not
installed is left out.
"""

import argparse
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import orjson

import tpuserve
from benchmarks.serve import models
from benchmarks.serve.turns import compare_in_turns, print_comparisons
from tpuserve.bench import benchmark
from tpuserve.bench.benchmark import InputChoice, Target
from tpuserve.bench.load import Load
from tpuserve.bench.windows import Procedure
from tpuserve.client import Client
from tpuserve.local_server import LocalServer
from tpuserve.proto import prediction_service_pb2 as pb

MODEL = "half"
IMPORT_TARGET_SECONDS = 0.3
PERF_ANALYZER = os.environ.get("TPUSERVE_PERF_ANALYZER") or shutil.which("perf_analyzer")
_WARM_UP_CALLS = 50
# An estimate, by which perf_analyzer measures as long as the others.
_REQUESTS_PER_SECOND = 2000

Call = Callable[[], Any]


def bare_httpx(server: LocalServer) -> Call:
    """Return a function that predicts with httpx."""
    client = httpx.Client()
    url = f"{server.rest_url}/v1/models/{MODEL}:predict"
    headers = {"content-type": "application/json"}
    x = models.half_plus_two_input()

    def call() -> Any:
        body = orjson.dumps({"inputs": {"x": x}}, option=orjson.OPT_SERIALIZE_NUMPY)
        response = client.post(url, content=body, headers=headers, timeout=30)
        response.raise_for_status()
        return np.array(orjson.loads(response.content)["outputs"], np.float32)

    return call


def bare_grpcio(server: LocalServer) -> Call:
    """Return a function that predicts with grpcio and the compiled messages."""
    channel = grpc.insecure_channel(server.grpc_url.removeprefix("grpc://"))
    predict = channel.unary_unary(
        "/tensorflow.serving.PredictionService/Predict",
        request_serializer=pb.PredictRequest.SerializeToString,
        response_deserializer=pb.PredictResponse.FromString,
    )
    x = models.half_plus_two_input()

    def call() -> Any:
        request = pb.PredictRequest()
        request.model_spec.name = MODEL
        tensor = request.inputs["x"]
        tensor.dtype = 1
        tensor.tensor_shape.dim.add(size=len(x))
        tensor.tensor_content = x.tobytes()
        response = predict(request, timeout=30)
        return np.frombuffer(response.outputs["y"].float_val[0], np.float32)

    return call


def ours(client: Client) -> Call:
    """Return a function that predicts with the client."""
    x = models.half_plus_two_input()
    return lambda: client.predict(MODEL, {"x": x})["y"]


def median_latencies(calls: Sequence[Call], num_calls: int) -> list[float]:
    """Make calls of each side in turn, one by one, and return the median latencies in seconds."""
    times: list[list[float]] = [[] for _ in calls]
    for position in range(num_calls + _WARM_UP_CALLS):
        for call, latencies in zip(calls, times, strict=True):
            started = time.perf_counter()
            result = call()
            latencies.append(time.perf_counter() - started)
            if not position and result.tolist() != [2.5, 3, 4.5]:
                raise RuntimeError(f"a wrong answer: {result}")
    return [statistics.median(latencies[_WARM_UP_CALLS:]) for latencies in times]


def import_cpu_seconds(module: str) -> float:
    """Return the processor time of the import of a module in a new process, in seconds."""
    times = []
    for statement in (f"import {module}", ""):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", statement], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return times[0] - times[1]


def measure_with_bench(target: Target, clients: int, seconds: float) -> float:
    """Return the requests per second that `tpuserve bench` measures."""
    procedure = Procedure(window_s=seconds / 3, max_windows=3, warm_up_s=0.5)
    (result,) = benchmark.run(target, InputChoice(shapes={"x": (3,)}), [Load(clients)], procedure)
    return result.requests_per_second


def measure_with_wrk(server: LocalServer, clients: int, seconds: float, script: Path) -> float:
    """Return the requests per second that wrk measures over REST."""
    script.write_text('wrk.method="POST"\nwrk.body=\'{"inputs": {"x": [1.0, 2.0, 5.0]}}\'\n')
    url = f"{server.rest_url}/v1/models/{MODEL}:predict"
    arguments = ["-t1", f"-c{clients}", f"-d{max(1, round(seconds))}s", "-s", str(script), url]
    finished = subprocess.run(["wrk", *arguments], capture_output=True, text=True, check=True)
    match = re.search(r"Requests/sec:\s+([\d.]+)", finished.stdout)
    if match is None or "Non-2xx" in finished.stdout:
        raise RuntimeError(finished.stdout)
    return float(match[1])


def measure_with_perf_analyzer(url: str, clients: int, seconds: float) -> float:
    """Return the requests per second that perf_analyzer measures with the V2 API of a URL."""
    assert PERF_ANALYZER is not None
    scheme, address = url.split("://")
    # With this tolerance, windows of any figures agree: the rounds repeat the measurement.
    finished = subprocess.run(
        [
            *(PERF_ANALYZER, "-m", MODEL, "-i", scheme, "-u", address, "--shape", "x:3"),
            *("--concurrency-range", str(clients), "-s", "999", "-r", "3"),
            *("--measurement-mode", "count_windows"),
            *("--measurement-request-count", str(round(seconds * _REQUESTS_PER_SECOND / 3))),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    match = re.search(r"throughput: ([\d.]+) infer/sec", finished.stdout, re.IGNORECASE)
    if match is None:
        raise RuntimeError(finished.stdout + finished.stderr)
    return float(match[1])


def compare_clients(server: LocalServer, rounds: int, num_calls: int) -> None:
    """Print the latency of the client, and its ratio to the bare library's in each round."""
    with server.client() as rest_client, server.client("grpc") as grpc_client:
        for title, client, bare in (
            ("REST, httpx", rest_client, bare_httpx),
            ("gRPC, grpcio", grpc_client, bare_grpcio),
        ):
            sides = [ours(client), bare(server)]
            pairs = [median_latencies(sides, num_calls) for _ in range(rounds)]
            ratios = [mine / bare_library for mine, bare_library in pairs]
            medians = [statistics.median(column) * 1e3 for column in zip(*pairs, strict=True)]
            print(
                f"{title} (load average {os.getloadavg()[0]:.1f}): the client {medians[0]:.2f} ms, "
                f"bare {medians[1]:.2f} ms; latency {statistics.median(ratios):.2f} of the bare "
                f"library's ({min(ratios):.2f} to {max(ratios):.2f})",
                flush=True,
            )


def compare_bench(
    server: LocalServer, rounds: int, clients: int, seconds: float, script: Path
) -> None:
    """Print the requests per second that `tpuserve bench` and other programs measure."""
    pairs: list[tuple[str, Target, Call]] = []
    if shutil.which("wrk"):
        wrk = lambda: measure_with_wrk(server, clients, seconds, script)  # noqa: E731
        pairs.append(("REST, without: wrk", Target(server.rest_url, MODEL), wrk))
    if PERF_ANALYZER:
        for name, url in (("V2 over REST", server.rest_url), ("V2 over gRPC", server.grpc_url)):

            def perf_analyzer(url: str = url) -> float:
                return measure_with_perf_analyzer(url, clients, seconds)

            target = Target(url, MODEL, "v2")
            pairs.append((f"{name}, without: perf_analyzer", target, perf_analyzer))
    for name, target, other in pairs:

        def measure(call: Call) -> dict[str, float]:
            return {"requests/s": call()}

        def bench(target: Target = target) -> float:
            return measure_with_bench(target, clients, seconds)

        title = f"with: tpuserve bench, {clients} clients, {name}"
        print_comparisons(title, compare_in_turns(bench, other, measure, rounds))


def compare_imports(rounds: int) -> None:
    """Print the processor time of importing the client, NumPy and TensorFlow Serving's stubs."""
    names = ("tpuserve.client", "numpy", "tensorflow_serving.apis.prediction_service_pb2_grpc")
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            times[name].append(import_cpu_seconds(name))
    print(f"processor time of an import; target for the client: {IMPORT_TARGET_SECONDS} s")
    for name, figures in times.items():
        median = statistics.median(figures)
        print(f"  {name}: {median:.2f} s ({min(figures):.2f} to {max(figures):.2f})")


def main() -> None:
    """Measure, and print ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--clients", type=int, default=4)
    arguments = parser.parse_args()
    rounds, seconds = arguments.rounds, arguments.seconds
    compare_imports(rounds)
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary) / MODEL
        models.save_half_plus_two(base / "1")
        with tpuserve.serve({MODEL: base}) as server:
            compare_clients(server, rounds, arguments.calls)
            script = Path(temporary) / "post.lua"
            compare_bench(server, rounds, arguments.clients, seconds, script)


if __name__ == "__main__":
    main()
