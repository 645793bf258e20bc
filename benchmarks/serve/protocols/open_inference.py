"""Compares an image in the Open Inference Protocol as binary data with the same image as JSON.

    python -m benchmarks.serve.protocols.open_inference [--rounds 5]

The image has 224 x 224 x 3 float32 numbers. Its JSON has either the digits of doubles, as
tritonclient and KServe's client write it, or the shortest form. The same image is also sent over
gRPC, as raw contents and in TensorFlow Serving's Predict. One server answers all of them, in turns.
The benchmark compares the processor time of the server: wall time depends on the other programs of
the machine. The model does nearly nothing. Before that, the codec is measured alone.
"""

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import grpc
import numpy as np

from benchmarks.serve.protocols.rest import Side
from server.parsing.request_parser import RequestParser
from server.request import RequestContext
from tpuserve.saved_model.signature import Signature, TensorSpec

SHAPE = (1, 224, 224, 3)
TARGET = 10.0
INFER = "/v2/models/image/infer"
# The number of requests of one turn. The processor time of a process has a resolution of 10 ms.
REQUESTS = {
    "V2 JSON": 30,
    "V2 JSON, shortest": 30,
    "V2 binary": 300,
    "V2 gRPC, raw": 300,
    "Predict over gRPC": 300,
}

Send = Callable[[], object]


@contextmanager
def serving() -> Iterator[tuple[Side, int]]:
    """Run the server in a subprocess; yield its REST side and the port of gRPC."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.serve.protocols.open_inference_program"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    try:
        assert process.stdout is not None
        rest_port, grpc_port = int(process.stdout.readline()), int(process.stdout.readline())
        yield Side("ours", rest_port, process.pid), grpc_port
    finally:
        process.kill()
        process.communicate()


def make_senders(connection: http.client.HTTPConnection, channel: Any) -> dict[str, Send]:
    """Return functions that send one request and check its response, by the name of the request."""
    from tensorflow import make_tensor_proto
    from tensorflow_serving.apis import predict_pb2

    from tpuserve.proto.open_inference import message_type

    image = np.random.default_rng(7).random(SHAPE, np.float32)
    pixel = image[0, 0, 0].tolist()
    tensor: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": list(SHAPE)}
    flat = image.reshape(-1)
    texts = [
        json.dumps({"inputs": [{**tensor, "data": numbers}]}).encode()
        for numbers in (flat.tolist(), flat.astype(str).astype(float).tolist())
    ]
    parameters = {"binary_data_size": image.nbytes}
    head = json.dumps(
        {
            "inputs": [{**tensor, "parameters": parameters}],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    header = {"Inference-Header-Content-Length": str(len(head))}
    binary = head + image.tobytes()

    def post(body: bytes, headers: dict[str, str]) -> tuple[http.client.HTTPResponse, bytes]:
        connection.request("POST", INFER, body, headers)
        response = connection.getresponse()
        content = response.read()
        assert response.status == 200, content
        return response, content

    def send_json(text: bytes) -> None:
        data = json.loads(post(text, {})[1])["outputs"][0]["data"]
        assert np.array_equal(np.float32(data), np.float32(pixel))

    def send_binary() -> None:
        response, content = post(binary, header)
        size = int(response.headers["Inference-Header-Content-Length"])
        assert np.frombuffer(content[size:], np.float32).tolist() == pixel

    request_type = message_type("ModelInferRequest")
    raw = request_type(
        model_name="image", inputs=[tensor], raw_input_contents=[image.tobytes()]
    ).SerializeToString()
    infer = channel.unary_unary(
        "/inference.GRPCInferenceService/ModelInfer",
        response_deserializer=message_type("ModelInferResponse").FromString,
    )

    def send_raw() -> None:
        assert np.frombuffer(infer(raw).raw_output_contents[0], np.float32).tolist() == pixel

    predict_request = predict_pb2.PredictRequest()
    predict_request.model_spec.name = "image"
    predict_request.inputs["x"].CopyFrom(make_tensor_proto(image))
    serialized = predict_request.SerializeToString()
    predict = channel.unary_unary(
        "/tensorflow.serving.PredictionService/Predict",
        response_deserializer=predict_pb2.PredictResponse.FromString,
    )

    def send_predict() -> None:
        assert list(predict(serialized).outputs["y"].float_val) == pixel

    senders: list[Send] = [
        *(partial(send_json, text) for text in texts),
        send_binary,
        send_raw,
        send_predict,
    ]
    return dict(zip(REQUESTS, senders, strict=True))


def measure_codec() -> tuple[float, float]:
    """Return the processor time of decoding an image as JSON and as binary data, in ms."""
    image = np.random.default_rng(7).random(SHAPE, np.float32)
    tensor: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": list(SHAPE)}
    text = json.dumps({"inputs": [{**tensor, "data": image.reshape(-1).tolist()}]}).encode()
    binary_tensor = {**tensor, "parameters": {"binary_data_size": image.nbytes}}
    head, binary = json.dumps({"inputs": [binary_tensor]}).encode(), image.tobytes()
    parser = RequestParser()
    signature = Signature({"x": TensorSpec("x:0", "float32", (None, *SHAPE[1:]))}, {})

    def decode(text: bytes, binary: bytes) -> None:
        request = parser.parse_infer_request(text, RequestContext())
        inputs = request.read_inputs(signature, memoryview(binary), lambda num_bytes: None)
        assert np.array_equal(inputs["x"], image)

    times = []
    for body, rest, repeats in ((text, b"", 20), (head, binary, 400)):
        decode(body, rest)
        started = time.process_time()
        for _ in range(repeats):
            decode(body, rest)
        times.append((time.process_time() - started) / repeats * 1000)
    parser.close()
    return times[0], times[1]


def measure_cpu_ms(side: Side, send: Send, requests: int) -> float:
    """Return the processor time of the server for a request, in milliseconds."""
    send()
    before = side.cpu_seconds()
    for _ in range(requests):
        send()
    return (side.cpu_seconds() - before) / requests * 1000


def main() -> None:
    """Measure, and print ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    options = [("grpc.max_receive_message_length", -1)]
    json_ms, binary_ms = measure_codec()
    print(
        f"the codec alone: JSON {json_ms:.2f} ms, binary {binary_ms:.2f} ms, "
        f"{json_ms / binary_ms:.1f}x"
    )
    with serving() as (side, port), grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        connection = http.client.HTTPConnection("127.0.0.1", side.port)
        senders = make_senders(connection, channel)
        turns: dict[str, list[float]] = {name: [] for name in senders}
        for _ in range(arguments.rounds):
            for name, send in senders.items():
                # The server closes a connection that is idle during the turns of gRPC.
                connection.close()
                turns[name].append(measure_cpu_ms(side, send, REQUESTS[name]))
    print(f"an image of {SHAPE} float32: processor time of the server for a request")
    binary = turns["V2 binary"]
    for name, figures in turns.items():
        ratios = [
            figure / binary_figure for figure, binary_figure in zip(figures, binary, strict=True)
        ]
        print(
            f"  {name:18} {statistics.median(figures):6.2f} ms, {statistics.median(ratios):5.1f}x "
            f"V2 binary ({min(ratios):.1f} to {max(ratios):.1f})"
        )
    print(f"  target: V2 JSON takes at least {TARGET:.0f}x V2 binary")


if __name__ == "__main__":
    main()
