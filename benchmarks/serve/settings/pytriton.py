"""Compares the server and its default flags with nvidia-pytriton and its dynamic batcher.

    python -m benchmarks.serve.settings.pytriton [--environment DIRECTORY] [--clients 1 8 32]
      [--rounds 5]

Both serve the same CNN for MNIST, with one image in each request, over REST and gRPC. pytriton
speaks Triton's protocols. The servers take turns. The benchmark prints the requests per second and
the 99th percentile of the response times in each round, and the median of their ratios.

pytriton needs Debian's Python 3.11 and packages that conflict with those of this project. So it
runs in an environment of its own, in DIRECTORY, which is created if it does not exist (1.5 GB). By
default it is created in a temporary directory, and deleted at the end.

Needs h2load (Debian: nghttp2-client) and python3.11-venv.
"""

import argparse
import json
import os
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc

from benchmarks.serve import h2load, models
from benchmarks.serve.h2load import Target
from benchmarks.serve.lifecycle import swap
from benchmarks.serve.settings import batching
from benchmarks.serve.turns import print_comparisons
from tests.processes import free_ports
from tpuserve.proto import protobuf_wire

# The goals: protocol → number of clients → our requests/s divided by those of pytriton.
TARGETS = {"REST": {1: 2.5, 8: 2.0, 32: 1.4}, "gRPC": {1: 2.5, 8: 1.8, 32: 1.1}}
CLIENTS = [1, 8, 32]
_PYTHON = "/usr/bin/python3.11"
_PACKAGES = ("nvidia-pytriton==0.7.0", "tensorflow-cpu==2.21.0")
_PROGRAM = Path(__file__).with_name("pytriton_program.py")
_HOST = "127.0.0.1"
_METHOD = "/inference.GRPCInferenceService/ModelInfer"


def create_environment(directory: Path) -> Path:
    """Create the environment of pytriton unless it exists, and return its Python program."""
    python = directory / "bin" / "python"
    if not python.exists():
        subprocess.run([_PYTHON, "-m", "venv", str(directory)], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *_PACKAGES], check=True)
    return python


@contextmanager
def serving(python: Path, model: Path, directory: Path) -> Iterator[dict[str, Target]]:
    """Run pytriton in a subprocess, and end the subprocess on exit.

    Args:
      python: The Python program of pytriton's environment.
      model: The directory of the SavedModel.
      directory: A directory for the bodies of the requests.

    Yields:
      Protocol → target.
    """
    http_port, grpc_port = free_ports(2)
    process = subprocess.Popen(
        # Pass -P: otherwise the program would import this module instead of the package pytriton.
        [python, "-P", str(_PROGRAM), str(model), str(http_port), str(grpc_port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        # Leave out the environment variables of Python: they are meant for this project's
        # environment.
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
    )
    try:
        assert process.stdout is not None
        if not any(line == "ready\n" for line in process.stdout):
            raise RuntimeError("pytriton has not started")
        yield triton_targets(http_port, grpc_port, process.pid, directory)
    finally:
        process.communicate()


def triton_targets(http_port: int, grpc_port: int, pid: int, directory: Path) -> dict[str, Target]:
    """Write the requests for the CNN to files, and return protocol → target.

    Raises:
      RuntimeError: The server answers a request with an error.
    """
    image = models.mnist_input()
    rest_body, grpc_body = directory / "triton.json", directory / "triton.grpc"
    tensor = {"name": "x", "shape": list(image.shape), "datatype": "FP32"}
    h2load.write_json_body(
        rest_body, {"inputs": [{**tensor, "data": image.round(4).ravel().tolist()}]}
    )
    shape = b"".join(map(protobuf_wire.encode_varint, image.shape))
    message = b"".join(
        (
            _field(1, b"mnist"),
            _field(5, _field(1, b"x") + _field(2, b"FP32") + _field(3, shape)),
            _field(7, image.tobytes()),
        )
    )
    h2load.write_grpc_body(grpc_body, message)
    rest_url = f"http://{_HOST}:{http_port}/v2/models/mnist/infer"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(rest_url, rest_body.read_bytes(), timeout=60) as response:
        (output,) = json.load(response)["outputs"]
    if len(output["data"]) != 10:
        raise RuntimeError(f"{rest_url} answered {output}")
    with grpc.insecure_channel(f"{_HOST}:{grpc_port}") as channel:
        channel.unary_unary(_METHOD)(message, timeout=60)
    return {
        "REST": Target(rest_url, rest_body, False, pid),
        "gRPC": Target(f"http://{_HOST}:{grpc_port}{_METHOD}", grpc_body, True, pid),
    }


def _field(number: int, content: bytes) -> bytes:
    """Serialise a length-delimited field of a ModelInferRequest."""
    length = protobuf_wire.encode_varint(len(content))
    return protobuf_wire.field_tag(number) + length + content


def main() -> None:
    """Measure, and print ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--environment", type=Path)
    batching.add_arguments(parser, CLIENTS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        directory = Path(temporary)
        python = create_environment(arguments.environment or directory / "environment")
        base = directory / "mnist"
        models.save_mnist_cnn(base / "1")
        ours = batching.row_targets(
            *stack.enter_context(swap.serving(base)), directory, models.mnist_input()
        )
        theirs = stack.enter_context(serving(python, base / "1", directory))
        for protocol in ours:
            for clients in arguments.clients:
                comparisons = batching.compare(
                    ours[protocol],
                    theirs[protocol],
                    *(clients, arguments.rounds, arguments.seconds, directory / "log"),
                )
                print_comparisons(f"{protocol}, {clients} clients, ours and pytriton", comparisons)
                batching.print_verdict(comparisons["requests/s"], TARGETS[protocol].get(clients))


if __name__ == "__main__":
    main()
