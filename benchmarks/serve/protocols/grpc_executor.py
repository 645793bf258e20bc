"""Compares predict over gRPC with and without threads that poll grpcio's completion queue.

    python -m benchmarks.serve.protocols.grpc_executor [--rounds 3] [--seconds 3] [--clients 8]
        [--batching]

"With" is the server's CompletionQueueThreadPool. "Without" is the DefaultThreadPool that uses only
grpcio's public API. Both servers run during the whole benchmark and take turns. The figures are the
calls per second, and the server's processor time per call, which depends less on the other programs
of the machine. docs/performance.md contains the recorded ratios.

Needs h2load (Debian: nghttp2-client).
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from benchmarks.serve import models
from benchmarks.serve.turns import compare_in_turns, print_comparisons, process_cpu_seconds

INPUTS = {"half_plus_two": models.half_plus_two_input, "mnist_cnn": models.mnist_input}
_METHOD = "/tensorflow.serving.PredictionService/Predict"


@dataclass(frozen=True)
class RunningServer:
    """A server in a subprocess.

    Attributes:
      port: The gRPC port.
      pid: The process ID.
    """

    port: str
    pid: int


@contextmanager
def running_server(*arguments: str) -> Iterator[RunningServer]:
    """Run a server in a subprocess, and kill the subprocess on exit.

    Args:
      *arguments: The arguments of `grpc_executor_program`.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.serve.protocols.grpc_executor_program", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    try:
        assert process.stdout is not None
        yield RunningServer(process.stdout.readline().strip(), process.pid)
    finally:
        process.kill()
        process.communicate()


def serialized_request(model: str, array: Any) -> bytes:
    """Serialise a PredictRequest with the input x."""
    from tensorflow_serving.apis import predict_pb2

    from server.tensors import serializer

    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.inputs["x"].CopyFrom(serializer.array_to_tensor_proto(array))
    return bytes(request.SerializeToString())


def measure(server: RunningServer, body: Path, seconds: int, clients: int) -> dict[str, float]:
    """Send calls with h2load, and return the server's figures by their units.

    Args:
      server: The server to measure.
      body: A file with the length-prefixed message of a call.
      seconds: The duration of the measurement, in whole seconds.
      clients: The number of connections, each of which has one call in flight.
    """
    cpu_before = process_cpu_seconds(server.pid)
    finished = subprocess.run(
        ["h2load", "-D", str(seconds), "-c", str(clients), "-m", "1", "-d", str(body)]
        + ["-H", "content-type: application/grpc", "-H", "te: trailers"]
        + [f"http://127.0.0.1:{server.port}{_METHOD}"],
        capture_output=True,
        text=True,
        check=True,
    )
    cpu_seconds = process_cpu_seconds(server.pid) - cpu_before
    match = re.search(r"(\d+) succeeded, 0 failed", finished.stdout)
    assert match is not None, finished.stdout
    num_calls = int(match[1])
    return {
        "calls/s": num_calls / seconds,
        "us of processor time per call": cpu_seconds / num_calls * 1e6,
    }


def check_response(server: RunningServer, request: bytes) -> None:
    """Raise grpc.RpcError if the server answers with an error: h2load counts any response."""
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        channel.unary_unary(_METHOD)(request, timeout=30)


def main() -> None:
    """Measure both servers with both models, and print the figures and the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3, help="duration of a turn")
    parser.add_argument("--clients", type=int, default=8, help="number of connections")
    parser.add_argument("--batching", action="store_true", help="let the servers batch calls")
    arguments = parser.parse_args()
    if shutil.which("h2load") is None:
        sys.exit("h2load is not installed. Install it: apt-get install nghttp2-client")
    options = ["--batching"] if arguments.batching else []
    with (
        tempfile.TemporaryDirectory() as temporary,
        running_server("with", *options) as with_polling,
        running_server("without", *options) as without_polling,
    ):
        for model, make_input in INPUTS.items():
            body = Path(temporary) / model
            request = serialized_request(model, make_input())
            body.write_bytes(b"\0" + len(request).to_bytes(4, "big") + request)
            measure_model = partial(
                measure, body=body, seconds=arguments.seconds, clients=arguments.clients
            )
            for server in (with_polling, without_polling):
                check_response(server, request)
                measure_model(server)
            print_comparisons(
                model,
                compare_in_turns(with_polling, without_polling, measure_model, arguments.rounds),
            )


if __name__ == "__main__":
    main()
