"""Query a served model over gRPC with TensorFlow Serving's stubs.

$ python examples/ask_grpc.py localhost:8500 half_plus_two 1 2 5
half_plus_two version 1795233539: [[2.5], [3.0], [4.5]]
"""

import argparse

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc


def main(address, model_name, values):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model_name
    x = np.array([[value] for value in values], np.float32)
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(x))
    with grpc.insecure_channel(address) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        response = stub.Predict(request, timeout=10)
    y = tf.make_ndarray(response.outputs["y"])
    print(f"{model_name} version {response.model_spec.version.value}: {y.round(3).tolist()}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address", help="host:port of the server")
    parser.add_argument("model_name")
    parser.add_argument("values", type=float, nargs="+")
    flags = parser.parse_args()
    main(flags.address, flags.model_name, flags.values)
