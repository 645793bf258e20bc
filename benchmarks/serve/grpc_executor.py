"""Predict over gRPC with and without the threads that poll grpcio's completion queue.

    python -m benchmarks.serve.grpc_executor [--rounds 3] [--seconds 3] [--clients 8]

"With" is the server's CompletionQueueThreadPool, "without" is the DefaultThreadPool that uses only
grpcio's public API. Both servers run all the time, and are measured in alternating turns: calls per
second, and the processor time of the server for each call, which depends less on the machine's
other work. docs/performance.md has the recorded ratios.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.serve import models
from benchmarks.serve.turns import compare_in_turns, print_comparisons, process_cpu_seconds

INPUTS = {"half_plus_two": models.half_plus_two_input, "mnist_cnn": models.mnist_input}


@dataclass(frozen=True)
class RunningServer:
    """A server in a process of its own."""

    port: str
    pid: int


@contextmanager
def running_server(variant: str) -> Iterator[RunningServer]:
    """Start a server in a process of its own, and kill the server at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.serve.grpc_executor_program", variant],
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


def measure(
    server: RunningServer, request_file: Path, seconds: float, clients: int
) -> dict[str, float]:
    """Run the client in a process of its own, and return the figures of the server.

    The client sends a few more calls than it counts. Both variants get them alike.
    """
    arguments = [server.port, str(request_file), str(seconds), str(clients)]
    cpu_before = process_cpu_seconds(server.pid)
    finished = subprocess.run(
        [sys.executable, "-m", "benchmarks.serve.grpc_client", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    calls_per_second = float(finished.stdout)
    cpu_seconds = process_cpu_seconds(server.pid) - cpu_before
    return {
        "calls/s": calls_per_second,
        "us of processor time per call": cpu_seconds / (calls_per_second * seconds) * 1e6,
    }


def main() -> None:
    """Measure, and print calls per second and ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3, help="of each turn")
    parser.add_argument("--clients", type=int, default=8, help="threads, each with a channel")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as temporary,
        running_server("with") as with_polling,
        running_server("without") as without_polling,
    ):
        for model, make_input in INPUTS.items():
            file = Path(temporary) / model
            file.write_bytes(serialized_request(model, make_input()))

            measure_model = partial(
                measure,
                request_file=file,
                seconds=arguments.seconds,
                clients=arguments.clients,
            )
            for server in (with_polling, without_polling):
                measure_model(server)
            print_comparisons(
                model,
                compare_in_turns(with_polling, without_polling, measure_model, arguments.rounds),
            )


if __name__ == "__main__":
    main()
