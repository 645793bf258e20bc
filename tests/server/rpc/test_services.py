"""The services answer TensorFlow Serving's own stubs over a real channel."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from server import ports
from server.dataplane import DataPlane
from server.manager import Manager
from tests.server.fakes import FakeLoader
from tpuserve.errors import LoweringError

pytestmark = pytest.mark.slow


class Client:
    """TensorFlow Serving's stubs on one channel."""

    def __init__(self, channel: grpc.Channel) -> None:
        from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

        self.prediction = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        self.model = model_service_pb2_grpc.ModelServiceStub(channel)

    def predict(self, *output_filter: str, spec: Any = None, **inputs: Any) -> Any:
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2

        request = predict_pb2.PredictRequest(output_filter=output_filter)
        if spec is not False:
            request.model_spec.CopyFrom(model_spec(**(spec or {"name": "half"})))
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
        return self.prediction.Predict(request, timeout=10)

    def status(self, **spec: Any) -> Any:
        from tensorflow_serving.apis import get_model_status_pb2

        request = get_model_status_pb2.GetModelStatusRequest(model_spec=model_spec(**spec))
        return self.model.GetModelStatus(request, timeout=10).model_version_status


def model_spec(version: int | None = None, **fields: Any) -> Any:
    from tensorflow_serving.apis import model_pb2

    spec = model_pb2.ModelSpec(**fields)
    if version is not None:
        spec.version.value = version
    return spec


@pytest.fixture
def server(dataplane: DataPlane) -> Iterator[Any]:
    from server.rpc.server import RpcServer

    with ports.reserve("127.0.0.1", 0, "--port") as reserved:
        server = RpcServer(dataplane, "127.0.0.1", reserved.getsockname()[1], grace_seconds=10)
        server.start()
    yield server
    server.stop()
    server.join()


@pytest.fixture
def client(server: Any) -> Iterator[Client]:
    options = [("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(server.address, options) as channel:
        yield Client(channel)


X = np.array([1, 2, 5], np.float32)


def test_predict_answers_with_typed_values(client: Client) -> None:
    output = client.predict(x=X).outputs["y"]
    assert list(output.float_val) == [2.5, 3.0, 4.5]
    assert output.tensor_shape.dim[0].size == 3
    assert not output.tensor_content


def test_answer_names_model_version_and_signature(client: Client) -> None:
    spec = client.predict(x=X).model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("half", 3, "serving_default")


def test_output_filter_is_honoured(client: Client) -> None:
    spec = {"name": "half", "signature_name": "two", "version": 3}
    outputs = client.predict("sum", spec=spec, a=[5], b=[2]).outputs
    assert {name: list(each.int_val) for name, each in outputs.items()} == {"sum": [7]}


HALF = {"name": "half"}


@pytest.mark.parametrize(
    ("spec", "inputs", "code", "text"),
    [
        (False, {}, "INVALID_ARGUMENT", "Missing ModelSpec"),
        ({"name": ""}, {}, "INVALID_ARGUMENT", "ModelSpec has no name specified."),
        ({"name": "a"}, {}, "NOT_FOUND", "Servable not found for request: Latest(a)"),
        (
            {"name": "half", "version": 99},
            {},
            "NOT_FOUND",
            "Servable not found for request: Specific(half, 99)",
        ),
        (
            {"name": "half", "version_label": "L"},
            {},
            "INVALID_ARGUMENT",
            "Unrecognized servable version label: L",
        ),
        (
            {"name": "half", "signature_name": "S"},
            {},
            "FAILED_PRECONDITION",
            'Serving signature key "S" not found.',
        ),
        (
            HALF,
            {},
            "INVALID_ARGUMENT",
            "input size does not match signature: 0!=1 len({}) != len({x}). Sent extra: {}. "
            "Missing but required: {x}.",
        ),
        (HALF, {"x": "a"}, "INVALID_ARGUMENT", "Expects arg[0] to be float but string is provided"),
        (HALF, {"x": [[[1.0]]]}, "INVALID_ARGUMENT", "input must be a vector or a matrix"),
        (
            {"name": "half", "signature_name": "broken"},
            {"x": [1.0]},
            "INTERNAL",
            "Internal error, see the server's log",
        ),
    ],
)
def test_error_has_tensorflow_servings_code_and_text(
    client: Client, spec: Any, inputs: dict[str, Any], code: str, text: str
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.predict(spec=spec, **inputs)
    assert (caught.value.code().name, caught.value.details()) == (code, text)


def test_tensor_that_cannot_be_read_is_refused(client: Client) -> None:
    from tensorflow_serving.apis import predict_pb2

    request = predict_pb2.PredictRequest(model_spec=model_spec(name="half"))
    request.inputs["x"].dtype = 1
    request.inputs["x"].tensor_shape.dim.add(size=2**40)
    with pytest.raises(grpc.RpcError) as caught:
        client.prediction.Predict(request, timeout=10)
    assert caught.value.details() == "tensor parsing error: x"


def test_long_text_is_cut(client: Client) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.predict(spec={"name": "n" * 2000})
    assert len(caught.value.details()) == 1024 + len("...TRUNCATED")


def test_message_beyond_grpcs_default_limit_is_taken(client: Client) -> None:
    x = np.zeros(2_000_000, np.float32)
    assert len(client.predict(x=x).outputs["y"].float_val) == 2_000_000


def test_status_lists_versions(client: Client, manager: Manager, loader: FakeLoader) -> None:
    loader.failures[4] = LoweringError("no form on a CPU")
    manager.aspire("half", {3: Path("/models/half/3"), 4: Path("/models/half/4")})
    failed, available = client.status(name="half")
    assert (failed.version, failed.state) == (4, 50)
    assert (failed.status.error_code, failed.status.error_message) == (12, "no form on a CPU")
    assert (available.version, available.state, available.status.error_code) == (3, 30, 0)


def test_status_of_one_version_is_that_alone(client: Client) -> None:
    assert [each.version for each in client.status(name="half", version=3)] == [3]


def test_status_of_an_unknown_model_is_not_found(client: Client) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.status(name="other")
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert caught.value.details() == "Could not find any versions of model other"


def test_other_methods_are_unimplemented(client: Client) -> None:
    from tensorflow_serving.apis import classification_pb2

    with pytest.raises(grpc.RpcError) as caught:
        client.prediction.Classify(classification_pb2.ClassificationRequest(), timeout=10)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_stop_answers_the_call_in_flight(client: Client, server: Any, loader: FakeLoader) -> None:
    model = loader.models[3]
    model.gate.clear()
    with ThreadPoolExecutor() as pool:
        reply = pool.submit(client.predict, x=X)
        assert model.entered.wait(10)
        server.stop()
        model.gate.set()
        assert list(reply.result().outputs["y"].float_val) == [2.5, 3.0, 4.5]


def test_port_that_another_server_has_is_refused(dataplane: DataPlane, server: Any) -> None:
    from server.rpc.server import RpcServer

    host, port = server.address.split(":")
    with pytest.raises(RuntimeError):
        RpcServer(dataplane, host, int(port), grace_seconds=0).start()
