"""Servers for tests, and clients with TensorFlow Serving's stubs."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc

from server.config.settings import Settings
from server.dataplane import DataPlane
from tests.processes import LOOPBACK, free_ports

NO_LIMIT = [("grpc.max_receive_message_length", -1)]


class Client:
    """TensorFlow Serving's stubs on one channel."""

    def __init__(self, channel: grpc.Channel) -> None:
        from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

        self.channel = channel
        self.prediction = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        self.model = model_service_pb2_grpc.ModelServiceStub(channel)

    def predict(self, *output_filter: str, spec: Any = None, **inputs: Any) -> Any:
        return self.prediction.Predict(predict_request(*output_filter, spec=spec, **inputs), 10)

    def status(self, **spec: Any) -> Any:
        from tensorflow_serving.apis import get_model_status_pb2

        request = get_model_status_pb2.GetModelStatusRequest(model_spec=model_spec(**spec))
        return self.model.GetModelStatus(request, timeout=10).model_version_status

    def classify(self, input_message: Any = None, **spec: Any) -> Any:
        from tensorflow_serving.apis import classification_pb2

        request = classification_pb2.ClassificationRequest(input=input_message)
        if spec:
            request.model_spec.CopyFrom(model_spec(**spec))
        return self.prediction.Classify(request, timeout=10)

    def regress(self, input_message: Any = None, **spec: Any) -> Any:
        from tensorflow_serving.apis import regression_pb2

        request = regression_pb2.RegressionRequest(input=input_message)
        if spec:
            request.model_spec.CopyFrom(model_spec(**spec))
        return self.prediction.Regress(request, timeout=10)

    def multi_inference(self, input_message: Any, *tasks: tuple[Mapping[str, Any], str]) -> Any:
        from tensorflow_serving.apis import inference_pb2

        request = inference_pb2.MultiInferenceRequest(input=input_message)
        for spec, method in tasks:
            request.tasks.add(model_spec=model_spec(**spec), method_name=method)
        return self.prediction.MultiInference(request, timeout=10)

    def metadata(self, *fields: str, **spec: Any) -> Any:
        from tensorflow_serving.apis import get_model_metadata_pb2

        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=fields)
        if spec:
            request.model_spec.CopyFrom(model_spec(**spec))
        return self.prediction.GetModelMetadata(request, timeout=10)


def predict_request(*output_filter: str, spec: Any = None, **inputs: Any) -> Any:
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    request = predict_pb2.PredictRequest(output_filter=output_filter)
    if spec is not False:
        request.model_spec.CopyFrom(model_spec(**(spec or {"name": "half"})))
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return request


def model_spec(version: int | None = None, **fields: Any) -> Any:
    from tensorflow_serving.apis import model_pb2

    spec = model_pb2.ModelSpec(**fields)
    if version is not None:
        spec.version.value = version
    return spec


def example(**features: float) -> Any:
    import tensorflow as tf

    proto = tf.train.Example()
    for name, value in features.items():
        proto.features.feature[name].float_list.value.append(value)
    return proto


def example_list(examples: Sequence[Any], context: Any = None) -> Any:
    from tensorflow_serving.apis import input_pb2

    input_message = input_pb2.Input()
    if context is None:
        input_message.example_list.examples.extend(examples)
    else:
        input_message.example_list_with_context.examples.extend(examples)
        input_message.example_list_with_context.context.CopyFrom(context)
    return input_message


@contextmanager
def serving(dataplane: DataPlane, has_port: bool = True, **options: Any) -> Iterator[Any]:
    """Yield a running server; options are arguments of GrpcServer, or settings by their names."""
    from server.frontends.grpc.server import GrpcServer

    server_options = {
        name: options.pop(name)
        for name in (
            "memory_budget",
            "queues",
            "tls",
            "keys",
            "admission",
            "metrics",
            "service_types",
            "allow_direct_polling",
        )
        if name in options
    }
    settings = replace(Settings(Path("/models")), **options)
    port = free_ports(1)[0] if has_port else 0
    server = GrpcServer(dataplane, LOOPBACK, port, 10, settings, **server_options)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        server.join()


@contextmanager
def connect(address: str, credentials: Any = None, *options: Any) -> Iterator[Client]:
    """Yield a client with a channel of its own."""
    chosen = [*NO_LIMIT, *options]
    channel = (
        grpc.insecure_channel(address, chosen)
        if credentials is None
        else grpc.secure_channel(address, credentials, chosen)
    )
    with channel:
        yield Client(channel)


def status_and_text(caught: Any) -> tuple[str, str]:
    """Return the status code and the text of a failed call."""
    return caught.value.code().name, caught.value.details()
