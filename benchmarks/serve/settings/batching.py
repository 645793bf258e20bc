"""Compares the server with and without batching on a CNN for MNIST, over REST and gRPC.

    python -m benchmarks.serve.settings.batching [--clients 1 8 32] [--rounds 5] [--seconds 4]
      [--layers 1 2 4 8]

Each request has one image. The server with batching has the flag's default, auto. With --layers, it
is compared instead on dense networks with these numbers of layers of 512 units, and batches those
of any speed. The servers take turns, so that other programs of the machine affect both
equally. The benchmark prints the requests per second, the 99th percentile of the response times and
the processor time of the server for a request in each round, and the median of their ratios, with
batching to without.

Needs h2load (Debian: nghttp2-client).
"""

import argparse
import json
import shutil
import sys
import tempfile
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc

from benchmarks.serve import h2load, models
from benchmarks.serve.h2load import PREDICT_METHOD, Target
from benchmarks.serve.lifecycle import swap
from benchmarks.serve.turns import Comparison, compare_in_turns, print_comparisons

# The goals: number of clients → requests/s with batching divided by requests/s without.
TARGETS = {1: 0.95, 8: 1.6, 32: 2.0}
MODEL = "half"


def row_targets(
    rpc_port: int, rest_port: int, pid: int, directory: Path, row: Any
) -> dict[str, Target]:
    """Write the requests with one row, an array [1, ...], to files; return protocol → target.

    Raises:
      RuntimeError: The server answers a request with an error.
    """
    from tensorflow_serving.apis import predict_pb2

    from server.tensors import serializer

    rest_body, grpc_body = directory / "body.json", directory / "body.grpc"
    h2load.write_json_body(rest_body, {"instances": row.round(4).tolist()})
    request = predict_pb2.PredictRequest()
    request.model_spec.name = MODEL
    request.inputs["x"].CopyFrom(serializer.array_to_tensor_proto(row))
    h2load.write_grpc_body(grpc_body, request.SerializeToString())
    rest_url = f"http://127.0.0.1:{rest_port}/v1/models/{MODEL}:predict"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(rest_url, rest_body.read_bytes(), timeout=60) as response:
        predictions = json.load(response)["predictions"]
    if len(predictions) != 1:
        raise RuntimeError(f"{rest_url} answered {predictions}")
    with grpc.insecure_channel(f"127.0.0.1:{rpc_port}") as channel:
        channel.unary_unary(PREDICT_METHOD)(request.SerializeToString(), timeout=60)
    return {
        "REST": Target(rest_url, rest_body, False, pid),
        "gRPC": Target(f"http://127.0.0.1:{rpc_port}{PREDICT_METHOD}", grpc_body, True, pid),
    }


def compare(
    with_feature: Target,
    without_feature: Target,
    clients: int,
    rounds: int,
    seconds: int,
    log: Path,
) -> dict[str, Comparison]:
    """Measure two targets in turns.

    Returns:
      "requests/s", "p99 in ms" and "us of processor time per request" → comparison.
    """

    def measure(target: Target) -> dict[str, float]:
        figures = h2load.measure(target, clients, seconds, log)
        return {
            "requests/s": figures.requests_per_second,
            "p99 in ms": figures.p99_ms,
            "us of processor time per request": figures.cpu_us,
        }

    return compare_in_turns(with_feature, without_feature, measure, rounds)


def add_arguments(parser: argparse.ArgumentParser, clients: list[int]) -> None:
    """Add the arguments of the measurement to a parser, and check that h2load is installed."""
    parser.add_argument("--clients", type=int, nargs="+", default=clients)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4)
    if shutil.which("h2load") is None:
        sys.exit("h2load is not installed. Install it: apt-get install nghttp2-client")


def compare_flag(
    flag: str,
    arguments: argparse.Namespace,
    targets: Mapping[int, float],
    *without: str,
    layers: int = 0,
) -> None:
    """Compare the servers with and without a flag, and print the ratios.

    Args:
      flag: the flag of `tpuserve serve`.
      arguments: those of `add_arguments`.
      targets: number of clients → the goal for the ratio of requests/s, where there is one.
      without: flags of the other server.
      layers: the number of layers of a dense network; 0 for the CNN.
    """
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        directory = Path(temporary)
        row = models.dense_input() if layers else models.mnist_input()
        if layers:
            models.save_dense(directory / "model" / "1", layers)
        else:
            models.save_mnist_cnn(directory / "model" / "1")
        with_flag, without_flag = (
            row_targets(
                *stack.enter_context(swap.serving(directory / "model", *flags)), directory, row
            )
            for flags in ([flag], without)
        )
        for protocol in with_flag:
            for clients in arguments.clients:
                comparisons = compare(
                    with_flag[protocol],
                    without_flag[protocol],
                    *(clients, arguments.rounds, arguments.seconds, directory / "log"),
                )
                print_comparisons(f"{protocol}, {clients} clients", comparisons)
                print_verdict(comparisons["requests/s"], targets.get(clients))


def print_verdict(comparison: Comparison, target: float | None) -> None:
    """Print whether the median ratio of requests/s has reached a target; None for no target."""
    if target is not None:
        verdict = "reached" if comparison.median_ratio >= target else "missed"
        print(f"  target of {target} of the requests/s: {verdict}", flush=True)


def main() -> None:
    """Measure, and print the ratios of both servers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add_arguments(parser, list(TARGETS))
    parser.add_argument("--layers", type=int, nargs="+", default=[0])
    arguments = parser.parse_args()
    for layers in arguments.layers:
        if layers:
            print(f"{layers} layers", flush=True)
        value = "true" if layers else "auto"
        compare_flag(
            f"--enable_batching={value}",
            arguments,
            {} if layers else TARGETS,
            "--enable_batching=false",
            layers=layers,
        )


if __name__ == "__main__":
    main()
