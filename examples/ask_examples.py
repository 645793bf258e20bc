"""Ask a model that parses tf.Examples, over REST and over gRPC.

    $ tpuserve serve --model_name=colours --model_base_path=$PWD/export/v1 &
    $ python examples/ask_examples.py localhost:8501 localhost:8500 colours
    REST: [0, 2]
    gRPC: [0, 2]

The model is the first export of docs/export.md: 0 is red, and 2 is blue. Its input is a vector of
strings, each of which is a serialised tf.Example. JSON has no bytes, so over REST such a string is
an object {"b64": "..."} with its base64 text; over gRPC it is sent as it is.
"""

import argparse
import base64
import json
import urllib.request

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc


def serialize(rgb):
    floats = tf.train.Feature(float_list=tf.train.FloatList(value=rgb))
    features = tf.train.Features(feature={"rgb": floats})
    return tf.train.Example(features=features).SerializeToString()


def ask_rest(address, model, examples):
    rows = [{"b64": base64.b64encode(example).decode()} for example in examples]
    request = urllib.request.Request(
        f"http://{address}/v1/models/{model}:predict", json.dumps({"instances": rows}).encode()
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return np.array(json.load(response)["predictions"])


def ask_grpc(address, model, examples):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.inputs["examples"].CopyFrom(tf.make_tensor_proto(examples, tf.string))
    with grpc.insecure_channel(address) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        return tf.make_ndarray(stub.Predict(request, timeout=60).outputs["logits"])


def main(rest, rpc, model):
    examples = [serialize([0.9, 0.2, 0.1]), serialize([0.1, 0.2, 0.8])]
    for name, logits in (
        ("REST", ask_rest(rest, model, examples)),
        ("gRPC", ask_grpc(rpc, model, examples)),
    ):
        print(f"{name}: {logits.argmax(axis=1).tolist()}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rest", help="the address of the REST API, such as localhost:8501")
    parser.add_argument("rpc", help="the address of the gRPC API, such as localhost:8500")
    parser.add_argument("model", help="the name of the model")
    arguments = parser.parse_args()
    main(arguments.rest, arguments.rpc, arguments.model)
