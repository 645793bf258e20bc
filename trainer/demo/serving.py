"""Starts the command `tpuserve serve` as a process, and queries it over REST and gRPC."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tpuserve import devices, tags
from tpuserve.errors import ExtraNotInstalled, Unavailable
from tpuserve.tags import TagSet

HOST = "127.0.0.1"
# Search for free ports below the range of ephemeral ports. The operating system could assign an
# ephemeral port to another process before the server binds the port.
_PORTS = range(20_000, 32_000)
START_TIMEOUT_SECONDS = 120
STOP_TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class Predictions:
    """The predictions of a server for n digits.

    Attributes:
      probabilities: float [n, 10], the probability of each class.
    """

    classes: np.ndarray[Any, Any]
    probabilities: np.ndarray[Any, Any]


@dataclass(frozen=True)
class DemoServer:
    """A running model server with one model, which can be queried."""

    model_name: str
    rest_port: int
    grpc_port: int

    def predict_rest(self, images: np.ndarray[Any, Any]) -> Predictions:
        """Query the server over REST, in the row format (`instances`).

        Args:
          images: float32 [n, 784], the model's input for n digits.
        """
        response = import_httpx().post(
            f"http://{HOST}:{self.rest_port}/v1/models/{self.model_name}:predict",
            json={"instances": images.tolist()},
            timeout=60,
            trust_env=False,
        )
        response.raise_for_status()
        rows = response.json()["predictions"]
        return Predictions(
            np.array([row["class"] for row in rows]),
            np.array([row["probabilities"] for row in rows]),
        )

    def predict_grpc(self, images: np.ndarray[Any, Any]) -> Predictions:
        """Query the server over gRPC, with the stubs of TensorFlow Serving.

        Args:
          images: float32 [n, 784], the model's input for n digits.
        """
        import grpc
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

        request = predict_pb2.PredictRequest()
        request.model_spec.name = self.model_name
        request.inputs["image"].CopyFrom(tf.make_tensor_proto(images))
        options = [("grpc.enable_http_proxy", 0)]
        with grpc.insecure_channel(f"{HOST}:{self.grpc_port}", options) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            outputs = stub.Predict(request, timeout=60).outputs
        return Predictions(
            tf.make_ndarray(outputs["class"]), tf.make_ndarray(outputs["probabilities"])
        )


@contextmanager
def running_server(model_name: str, base_path: Path, tag_set: TagSet) -> Iterator[DemoServer]:
    """Run a model server for one metagraph of a model, inside a with block.

    The server listens on free ports of the loopback address. It runs a TPU metagraph on the CPU,
    which emulates a TPU.
    """
    rest_port, grpc_port = _free_ports(2)
    server = DemoServer(model_name, rest_port, grpc_port)
    environment = dict(os.environ)
    if tag_set == tags.SERVE_TPU:
        environment[devices.EMULATION_VARIABLE] = "1"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "tpuserve", "serve"),
            f"--host={HOST}",
            f"--port={grpc_port}",
            f"--rest_api_port={rest_port}",
            f"--model_name={model_name}",
            f"--model_base_path={base_path}",
            f"--saved_model_tags={','.join(sorted(tag_set))}",
        ],
        env=environment,
    )
    try:
        _await_start(process, server)
        yield server
        _stop(process)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _await_start(process: "subprocess.Popen[bytes]", server: DemoServer) -> None:
    """Wait until the started server reports that its model is available."""
    url = f"http://{HOST}:{server.rest_port}/v1/models/{server.model_name}"
    httpx, deadline = import_httpx(), time.monotonic() + START_TIMEOUT_SECONDS
    # Ignore the proxy settings of the environment (trust_env=False), so that no proxy receives
    # local requests.
    with httpx.Client(timeout=5, trust_env=False) as client:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise Unavailable(
                    f"the server stopped with status {process.returncode} before it was ready; see "
                    f"its log above."
                )
            try:
                if client.get(url).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
    raise Unavailable(f"the server was not ready after {START_TIMEOUT_SECONDS} s: {url}")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        status = process.wait(STOP_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(
            f"the server has not stopped {STOP_TIMEOUT_SECONDS} s after SIGTERM; see its log above."
        ) from error
    if status != 0:
        raise Unavailable(f"the server stopped with status {status}; see its log above.")


def _free_ports(count: int) -> list[int]:
    """Find free ports on the loopback address."""
    # Keep the sockets open until the search ends, so that meanwhile no other process can bind a
    # port that was found.
    with ExitStack() as sockets:
        ports: list[int] = []
        for port in random.sample(_PORTS, len(_PORTS)):
            candidate = sockets.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                candidate.bind((HOST, port))
                ports.append(port)
            if len(ports) == count:
                return ports
    raise Unavailable(f"no {count} ports of {_PORTS[0]} to {_PORTS[-1]} are free on {HOST}.")


def import_httpx() -> Any:
    """Import and return the module httpx, by which the demo sends REST requests."""
    try:
        import httpx
    except ImportError as error:
        raise ExtraNotInstalled(
            "the demo sends HTTP requests with the package httpx, which is not installed. "
            "Run: pip install '.[examples]'"
        ) from error
    return httpx
