"""Compares predict over gRPC with and without threads that poll grpcio's completion queue.

    python -m benchmarks.serve.protocols.grpc_executor [--rounds 3] [--seconds 3] [--clients 8]

"With" is the server's CompletionQueueThreadPool. "Without" is the DefaultThreadPool that uses only
grpcio's public API. Both servers run during the whole benchmark and take turns. The figures are the
calls per second, and the server's processor time per call, which depends less on the other programs
of the machine. docs/performance.md contains the recorded ratios.
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
    """A server in a subprocess.

    Attributes:
      port: The gRPC port.
      pid: The process ID.
    """

    port: str
    pid: int


@contextmanager
def running_server(variant: str) -> Iterator[RunningServer]:
    """Run a server in a subprocess, and kill the subprocess on exit.

    Args:
      variant: The argument of `grpc_executor_program`.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.serve.protocols.grpc_executor_program", variant],
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
    """Run the client in a subprocess, and return the server's figures by their units.

    The processor time includes the client's warm-up calls, whose number is equal for both variants.

    Args:
      server: The server to measure.
      request_file: A file with a serialised PredictRequest.
      seconds: The duration of the measurement.
      clients: The number of client threads.
    """
    arguments = [server.port, str(request_file), str(seconds), str(clients)]
    cpu_before = process_cpu_seconds(server.pid)
    finished = subprocess.run(
        [sys.executable, "-m", "benchmarks.serve.protocols.grpc_client", *arguments],
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
    """Measure both servers with both models, and print the figures and the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3, help="duration of a turn")
    parser.add_argument("--clients", type=int, default=8, help="number of client threads")
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
