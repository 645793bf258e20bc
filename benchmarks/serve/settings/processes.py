"""Compares one and two server processes (--processes) on half_plus_two, over REST and gRPC.

    python -m benchmarks.serve.settings.processes [--clients 8 32] [--rounds 5] [--seconds 4]

The servers take turns, so that other programs of the machine affect both equally. The benchmark
prints the figures of each round, and the median of their ratios, of two processes to one.

Needs h2load (Debian: nghttp2-client).
"""

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.serve import h2load, models
from benchmarks.serve.h2load import PREDICT_METHOD, Target
from benchmarks.serve.lifecycle import swap
from benchmarks.serve.settings.batching import MODEL, add_arguments, compare
from benchmarks.serve.turns import print_comparisons


def targets(rpc_port: int, rest_port: int, pid: int, directory: Path) -> dict[str, Target]:
    """Write the requests to files, and return protocol → target."""
    from tensorflow_serving.apis import predict_pb2

    from server.tensors import serializer

    rest_body, grpc_body = directory / "body.json", directory / "body.grpc"
    h2load.write_json_body(rest_body, {"instances": [1.0, 2.0, 5.0]})
    request = predict_pb2.PredictRequest()
    request.model_spec.name = MODEL
    request.inputs["x"].CopyFrom(serializer.array_to_tensor_proto(models.half_plus_two_input()))
    h2load.write_grpc_body(grpc_body, request.SerializeToString())
    rest_url = f"http://127.0.0.1:{rest_port}/v1/models/{MODEL}:predict"
    grpc_url = f"http://127.0.0.1:{rpc_port}{PREDICT_METHOD}"
    return {
        "REST": Target(rest_url, rest_body, False, pid),
        "gRPC": Target(grpc_url, grpc_body, True, pid),
    }


def main() -> None:
    """Measure, and print the ratios of both servers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add_arguments(parser, [8, 32])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        directory = Path(temporary)
        models.save_half_plus_two(directory / "half" / "1")
        two, one = (
            targets(
                *stack.enter_context(swap.serving(directory / "half", f"--processes={number}")),
                directory,
            )
            for number in (2, 1)
        )
        for protocol in two:
            for clients in arguments.clients:
                comparisons = compare(
                    *(two[protocol], one[protocol], clients, arguments.rounds, arguments.seconds),
                    directory / "log",
                )
                print_comparisons(f"{protocol}, {clients} clients", comparisons)


if __name__ == "__main__":
    main()
