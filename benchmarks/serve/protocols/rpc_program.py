"""Runs one server of the gRPC benchmark: prints its port, and serves until its input ends.

    python -m benchmarks.serve.protocols.rpc_program SIDE

SIDE is "ours", "echo" or "echo with protos".
"""

import sys
import tempfile
from concurrent import futures
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from benchmarks.serve import models
from server.process import ports

_HOST = "127.0.0.1"
_SERVICE = "tensorflow.serving.PredictionService"


def linear_request(count: int) -> bytes:
    """Serialise a PredictRequest for half-plus-two with `count` numbers from 0 to 1."""
    return serialize_request(np.linspace(0, 1, count, dtype=np.float32))


def serialize_request(values: Any) -> bytes:
    """Serialise a PredictRequest for half-plus-two with values of shape [n]."""
    from tensorflow_serving.apis import predict_pb2

    from server.tensors import serializer

    request = predict_pb2.PredictRequest()
    request.model_spec.name = "half"
    request.inputs["x"].CopyFrom(serializer.array_to_tensor_proto(np.array(values, np.float32)))
    return bytes(request.SerializeToString())


def echo_response(raw: bytes) -> bytes:
    """Serialise a response of the size of half-plus-two's response to a request."""
    from tensorflow_serving.apis import predict_pb2

    response = predict_pb2.PredictResponse()
    response.outputs["y"].CopyFrom(predict_pb2.PredictRequest.FromString(raw).inputs["x"])
    response.model_spec.name, response.model_spec.signature_name = "half", "serving_default"
    response.model_spec.version.value = 1
    return bytes(response.SerializeToString())


def serve_echo(port: int, with_protos: bool) -> Any:
    """Start a plain grpcio server that sends precomputed responses.

    Args:
      port: The port to listen on.
      with_protos: Whether the server parses requests and serialises responses.
    """
    from tensorflow_serving.apis import predict_pb2

    responses = {len(raw): echo_response(raw) for raw in map(linear_request, (3, 150_528))}
    messages = {
        size: predict_pb2.PredictResponse.FromString(raw) for size, raw in responses.items()
    }

    def echo(raw: bytes, context: grpc.ServicerContext) -> bytes:
        return responses[len(raw)]

    def echo_message(message: Any, context: grpc.ServicerContext) -> Any:
        return messages[message.ByteSize()]

    server = grpc.server(
        futures.ThreadPoolExecutor(8), options=[("grpc.max_receive_message_length", -1)]
    )
    handler = grpc.unary_unary_rpc_method_handler(echo)
    if with_protos:
        handler = grpc.unary_unary_rpc_method_handler(
            echo_message,
            predict_pb2.PredictRequest.FromString,
            predict_pb2.PredictResponse.SerializeToString,
        )
    methods = grpc.method_handlers_generic_handler(_SERVICE, {"Predict": handler})
    server.add_generic_rpc_handlers((methods,))
    server.add_insecure_port(f"{_HOST}:{port}")
    server.start()
    return server


def serve_ours(port: int, directory: Path) -> Any:
    """Export half-plus-two to a directory, and start tpuserve's gRPC server with the model."""
    from server.admission.admission import AdmissionController
    from server.dataplane import DataPlane
    from server.frontends.grpc.server import GrpcServer
    from server.models.manager import Manager
    from tpuserve.runtime import loader

    models.save_half_plus_two(directory)
    manager = Manager(lambda path: loader.load(path))
    manager.set_aspired_versions("half", {1: directory})
    manager.wait(partial(manager.is_available, "half"))
    server = GrpcServer(
        DataPlane(manager), _HOST, port, grace_seconds=1, admission=AdmissionController(1000)
    )
    server.start()
    return server


def main() -> None:
    """Serve until standard input ends."""
    side = sys.argv[1]
    with ports.bind_port(_HOST, 0, "--port") as reserved:
        port = int(reserved.getsockname()[1])
    with tempfile.TemporaryDirectory() as temporary:
        if side == "ours":
            server = serve_ours(port, Path(temporary) / "1")
        else:
            server = serve_echo(port, with_protos=side != "echo")
        print(port, flush=True)
        sys.stdin.read()
    # grpcio stops a server without references, so keep a reference until the program ends.
    del server


if __name__ == "__main__":
    main()
