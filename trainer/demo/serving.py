"""A model server as a process, and the two ways to ask it."""

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
# Below those that a system gives to who asks for any: such a one may be another's by the time that
# the server takes it.
_PORTS = range(20_000, 32_000)
START_TIMEOUT_SECONDS = 120
STOP_TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class Answers:
    """What a server said of some digits.

    Attributes:
      classes: [n], the digit it sees.
      probabilities: [n, 10].
    """

    classes: np.ndarray[Any, Any]
    probabilities: np.ndarray[Any, Any]


@dataclass(frozen=True)
class Server:
    """A running server.

    Attributes:
      model_name: of the one model it serves.
      rest_port, grpc_port: on the loopback address.
    """

    model_name: str
    rest_port: int
    grpc_port: int

    def ask_rest(self, images: np.ndarray[Any, Any]) -> Answers:
        """Asks over REST, row by row, as any HTTP client would.

        Args:
          images: float32 [n, 784].
        """
        response = import_httpx().post(
            f"http://{HOST}:{self.rest_port}/v1/models/{self.model_name}:predict",
            json={"instances": images.tolist()},
            timeout=60,
            trust_env=False,
        )
        response.raise_for_status()
        rows = response.json()["predictions"]
        return Answers(
            np.array([row["class"] for row in rows]),
            np.array([row["probabilities"] for row in rows]),
        )

    def ask_grpc(self, images: np.ndarray[Any, Any]) -> Answers:
        """Asks over gRPC, with TensorFlow Serving's own stubs.

        Args:
          images: float32 [n, 784].
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
        return Answers(tf.make_ndarray(outputs["class"]), tf.make_ndarray(outputs["probabilities"]))


@contextmanager
def running_server(model_name: str, base_path: Path, tag_set: TagSet) -> Iterator[Server]:
    """A server of one metagraph on free loopback ports; stopped by SIGTERM on leaving.

    A TPU metagraph is lowered to the CPU. The server's log goes to standard error.

    Raises:
      Unavailable: it does not start, or does not stop cleanly.
    """
    rest_port, grpc_port = _free_ports(2)
    server = Server(model_name, rest_port, grpc_port)
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


def _await_start(process: "subprocess.Popen[bytes]", server: Server) -> None:
    url = f"http://{HOST}:{server.rest_port}/v1/models/{server.model_name}"
    httpx, deadline = import_httpx(), time.monotonic() + START_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise Unavailable(
                f"the server stopped with status {process.returncode} before it was ready; see "
                f"its log above."
            )
        try:
            # This machine is asked, whatever proxy the environment names.
            response = httpx.get(url, timeout=5, trust_env=False)
            if response.status_code == 200:
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
    # All are held at once, so that no two are the same.
    with ExitStack() as held:
        found: list[int] = []
        for port in random.sample(_PORTS, len(_PORTS)):
            if len(found) == count:
                return found
            each = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                each.bind((HOST, port))
                found.append(port)
    raise Unavailable(f"no {count} ports of {_PORTS[0]} to {_PORTS[-1]} are free on {HOST}.")


def import_httpx() -> Any:
    """The module httpx, which one of the extras brings.

    Raises:
      ExtraNotInstalled: it is not there.
    """
    try:
        import httpx
    except ImportError as error:
        raise ExtraNotInstalled(
            "the demo asks over HTTP with the package httpx, which is not installed. "
            "Run: pip install 'tpuserve[examples]'"
        ) from error
    return httpx
