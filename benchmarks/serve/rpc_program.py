"""One server of the comparison: prints its port, and serves until its input ends.

Argument: "ours", "echo" or "echo with protos".
"""

import sys
import tempfile
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from server.process import ports

_HOST = "127.0.0.1"
_SERVICE = "tensorflow.serving.PredictionService"


def request(values: int) -> bytes:
    """A Predict request for half-plus-two, of so many values."""
    return request_of(np.linspace(0, 1, values, dtype=np.float32))


def request_of(values: Any) -> bytes:
    """A Predict request for half-plus-two."""
    from tensorflow_serving.apis import predict_pb2

    from server.tensors import serializer

    made = predict_pb2.PredictRequest()
    made.model_spec.name = "half"
    made.inputs["x"].CopyFrom(serializer.array_to_tensor_proto(np.array(values, np.float32)))
    return bytes(made.SerializeToString())


def reply(raw: bytes) -> bytes:
    """What half-plus-two answers, or another answer of the same size."""
    from tensorflow_serving.apis import predict_pb2

    made = predict_pb2.PredictResponse()
    made.outputs["y"].CopyFrom(predict_pb2.PredictRequest.FromString(raw).inputs["x"])
    made.model_spec.name, made.model_spec.signature_name = "half", "serving_default"
    made.model_spec.version.value = 1
    return bytes(made.SerializeToString())


def serve_echo(port: int, with_protos: bool) -> Any:
    """A grpcio server as its documentation has it, which answers without looking."""
    from tensorflow_serving.apis import predict_pb2

    replies = {len(raw): reply(raw) for raw in map(request, (3, 150_528))}
    answers = {each: predict_pb2.PredictResponse.FromString(replies[each]) for each in replies}

    def echo(raw: bytes, context: grpc.ServicerContext) -> bytes:
        return replies[len(raw)]

    def echo_message(message: Any, context: grpc.ServicerContext) -> Any:
        return answers[message.ByteSize()]

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


def save_model(directory: Path) -> None:
    """Writes half-plus-two as a SavedModel."""
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None], name="x")
        a, b = tf.Variable(0.5, name="a"), tf.Variable(2.0, name="b")
        session.run(tf.global_variables_initializer())
        tf.saved_model.simple_save(session, str(directory), {"x": x}, {"y": a * x + b})


def serve_ours(port: int, directory: Path) -> Any:
    """Our server, with what a request passes through in it."""
    from server.admission.admission import AdmissionController
    from server.dataplane import DataPlane
    from server.frontends.grpc.server import GrpcServer
    from server.models.manager import Manager
    from tpuserve.runtime import loader

    save_model(directory)
    manager = Manager(lambda path: loader.load(path))
    manager.set_aspired_versions("half", {1: directory})
    manager.wait(lambda: manager.matches_aspired("half"))
    manager.wait(lambda: manager.is_available("half"))
    server = GrpcServer(
        DataPlane(manager), _HOST, port, grace_seconds=1, admission=AdmissionController(1000)
    )
    server.start()
    return server


def main() -> None:
    """Serves until standard input ends."""
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
    # Kept until here: a server that nobody refers to ends.
    del server


if __name__ == "__main__":
    main()
