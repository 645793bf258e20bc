"""Compares tpuserve.client with bare libraries, and tpuserve bench with wrk and perf_analyzer.

    python -m benchmarks.serve.clients.client [--rounds 7] [--calls 500] [--seconds 2] [--clients 4]

The server is `tpuserve serve`. The client and the bare libraries send three numbers to
half-plus-two, and decode the same arrays by hand: httpx with orjson, grpcio with the compiled
messages. All sides take turns, call by call, so that other programs of the machine affect them
equally. Each ratio compares the two sides in one round.

tpuserve bench, wrk and perf_analyzer send the same inputs, in turns, to half-plus-two and to a CNN
for MNIST, with 8 images in a request. On a machine with two cores, the load generators compete with
half-plus-two for the processors: the requests/s are also those that the system gives the server
time for. The run of the CNN takes most of the time of a request with any of them. The requests per
second of the server's processor time depend on the requests alone.

Import times are processor times of new processes, less that of a process that imports nothing.

wrk is Debian's package wrk. perf_analyzer is set up by `make .venv-perf/stamp`. A program that is
not installed is left out.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import orjson

import tpuserve
from benchmarks.serve import models
from benchmarks.serve.turns import compare_in_turns, cpu_seconds, print_comparisons
from tools.perf_analyzer import find_perf_analyzer, run_perf_analyzer
from tpuserve.bench import benchmark
from tpuserve.bench.benchmark import Target
from tpuserve.bench.inputs import RequestInputs, Requests
from tpuserve.bench.load import Load
from tpuserve.bench.windows import Procedure
from tpuserve.client import Client
from tpuserve.client.address import create_api, parse_url
from tpuserve.client.call import ModelReference
from tpuserve.local_server.server import LocalServer
from tpuserve.proto import prediction_service_pb2 as pb

MODEL = "half"
IMPORT_TARGET_SECONDS = 0.3
CNN = "cnn"
_WARM_UP_CALLS = 50

Call = Callable[[], Any]


@dataclass(frozen=True)
class Workload:
    """The requests with which `tpuserve bench` and the other programs are compared.

    Attributes:
      model: the name of the model.
      x: the input of each request.
      batch_arguments: the arguments with which perf_analyzer sends inputs of the same shape.
    """

    model: str
    x: Any
    batch_arguments: tuple[str, ...]


WORKLOADS = (
    Workload(MODEL, models.half_plus_two_input(), ("--shape", "x:3")),
    Workload(CNN, np.repeat(models.mnist_input(), 8, axis=0), ("-b", "8")),
)


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


def measure_with_bench(target: Target, x: Any, clients: int, seconds: float) -> float:
    """Return the requests per second that `tpuserve bench` measures."""
    procedure = Procedure(window_s=seconds / 3, max_windows=3, warm_up_s=0.5)
    requests = Requests([RequestInputs({"x": x})])
    (result,) = benchmark.run_benchmark(target, requests, [Load(clients)], procedure)
    return result.requests_per_second


def measure_with_wrk(url: str, load: Workload, clients: int, seconds: float) -> float:
    """Return the requests per second that wrk measures over REST, with the bytes of the client."""
    api = create_api(parse_url(url), "v1")
    call = api.encode_predict(ModelReference(load.model), {"x": load.x}, "", ())
    with tempfile.TemporaryDirectory() as temporary:
        body, script = Path(temporary, "body"), Path(temporary, "post.lua")
        body.write_bytes(call.body)
        script.write_text(
            f'wrk.method = "POST"\nwrk.body = io.open("{body}", "rb"):read("*a")\n'
            'wrk.headers["content-type"] = "application/json"\n'
        )
        arguments = ["-t1", f"-c{clients}", f"-d{max(1, round(seconds))}s", "-s", str(script)]
        command = ["wrk", *arguments, url + call.path]
        finished = subprocess.run(command, capture_output=True, text=True, check=True)
    match = re.search(r"Requests/sec:\s+([\d.]+)", finished.stdout)
    if match is None or "Non-2xx" in finished.stdout:
        raise RuntimeError(finished.stdout)
    return float(match[1])


def measure_with_perf_analyzer(url: str, load: Workload, clients: int, seconds: float) -> float:
    """Return the requests per second that perf_analyzer measures with the V2 API of a URL."""
    scheme, address = url.split("://")
    # With this tolerance, windows of any figures agree: the rounds repeat the measurement.
    report = run_perf_analyzer(
        *("-m", load.model, "-i", scheme, "-u", address, *load.batch_arguments),
        *("--concurrency-range", str(clients), "-s", "999", "-r", "3"),
        *("--measurement-interval", str(round(seconds * 1000 / 3))),
    )
    return report.requests_per_second


def read_successes(server: LocalServer, model: str) -> int:
    """Return the number of requests to a model that the server has answered."""
    response = httpx.get(f"{server.rest_url}/v2/models/{model}/stats", timeout=30)
    return int(response.json()["model_stats"][0]["inference_stats"]["success"]["count"])


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
    server: LocalServer, load: Workload, rounds: int, clients: int, seconds: float
) -> None:
    """Print the requests per second that `tpuserve bench` and other programs measure."""
    pairs: list[tuple[str, Target, Call]] = []
    if shutil.which("wrk"):
        wrk = lambda: measure_with_wrk(server.rest_url, load, clients, seconds)  # noqa: E731
        pairs.append(("REST, without: wrk", Target(server.rest_url, load.model), wrk))
    if find_perf_analyzer():
        for name, url in (("V2 over REST", server.rest_url), ("V2 over gRPC", server.grpc_url)):

            def perf_analyzer(url: str = url) -> float:
                return measure_with_perf_analyzer(url, load, clients, seconds)

            target = Target(url, load.model, "v2")
            pairs.append((f"{name}, without: perf_analyzer", target, perf_analyzer))
    for name, target, other in pairs:

        def measure(call: Call) -> dict[str, float]:
            answered, used = read_successes(server, load.model), cpu_seconds(server.pid)
            rate = call()
            answered = read_successes(server, load.model) - answered
            used = cpu_seconds(server.pid) - used
            return {"requests/s": rate, "requests/s of the server's processors": answered / used}

        def bench(target: Target = target) -> float:
            return measure_with_bench(target, load.x, clients, seconds)

        title = f"{load.model}, with: tpuserve bench, {clients} clients, {name}"
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
        bases = {name: Path(temporary, name) for name in (MODEL, CNN)}
        models.save_half_plus_two(bases[MODEL] / "1")
        models.save_mnist_cnn(bases[CNN] / "1")
        with tpuserve.serve(bases) as server:
            compare_clients(server, rounds, arguments.calls)
            for load in WORKLOADS:
                compare_bench(server, load, rounds, arguments.clients, seconds)


if __name__ == "__main__":
    main()
