"""The services answer TensorFlow Serving's own stubs over a real channel."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from server.dataplane import DataPlane
from server.models.manager import Manager
from tests.server.aspired_versions import aspire
from tests.server.fakes import FakeLoader
from tests.server.frontends.grpc import clients
from tests.server.frontends.grpc.clients import Client, model_spec
from tpuserve.errors import LoweringError


@pytest.fixture
def server(dataplane: DataPlane) -> Iterator[Any]:
    with clients.serving(dataplane) as server:
        yield server


@pytest.fixture
def client(server: Any) -> Iterator[Client]:
    with clients.connect(server.address) as client:
        yield client


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
    assert {name: list(proto.int_val) for name, proto in outputs.items()} == {"sum": [7]}


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


def test_tensor_that_cannot_be_parsed_is_refused(client: Client) -> None:
    from tensorflow_serving.apis import predict_pb2

    request = predict_pb2.PredictRequest(model_spec=model_spec(name="half"))
    request.inputs["x"].dtype = 1
    request.inputs["x"].tensor_shape.dim.add(size=2**40)
    with pytest.raises(grpc.RpcError) as caught:
        client.prediction.Predict(request, timeout=10)
    assert clients.status_and_text(caught) == ("INVALID_ARGUMENT", "tensor parsing error: x")


def test_long_error_text_is_truncated(client: Client) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.predict(spec={"name": "n" * 2000})
    assert len(caught.value.details()) == 1024 + len("...TRUNCATED")


def test_message_beyond_the_default_limit_of_grpc_is_accepted(client: Client) -> None:
    x = np.zeros(2_000_000, np.float32)
    assert len(client.predict(x=x).outputs["y"].float_val) == 2_000_000


def test_status_lists_versions(client: Client, manager: Manager, loader: FakeLoader) -> None:
    loader.failures[4] = LoweringError("no form on a CPU")
    aspire(manager, "half", {3: Path("/models/half/3"), 4: Path("/models/half/4")})
    failed, available = client.status(name="half")
    assert (failed.version, failed.state) == (4, 50)
    assert (failed.status.error_code, failed.status.error_message) == (12, "no form on a CPU")
    assert (available.version, available.state, available.status.error_code) == (3, 30, 0)


def test_status_of_a_version_lists_only_the_version(client: Client) -> None:
    assert [status.version for status in client.status(name="half", version=3)] == [3]


def test_status_of_an_unknown_model_is_not_found(client: Client) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.status(name="other")
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert caught.value.details() == "Could not find any versions of model other"


def test_note_of_a_version_is_its_error_message(dataplane: DataPlane) -> None:
    from server.frontends.grpc.call_context import CallContext
    from server.frontends.grpc.services.model_service import GetModelStatus
    from server.servables.servable import State, VersionStatus

    class NoteDataPlane:
        def status(self, model: str, version: int | None = None) -> list[VersionStatus]:
            return [VersionStatus(3, State.AVAILABLE, note="on the CPU instead")]

    from tensorflow_serving.apis import get_model_status_pb2 as pb

    message = pb.GetModelStatusRequest(model_spec=model_spec(name="half")).SerializeToString()
    raw = GetModelStatus(NoteDataPlane())(message, CallContext())  # type: ignore[arg-type]
    status = pb.GetModelStatusResponse.FromString(raw).model_version_status[0].status
    assert (status.error_code, status.error_message) == (0, "on the CPU instead")


def test_status_of_an_unknown_version_is_not_found(client: Client) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.status(name="half", version=9)
    assert clients.status_and_text(caught) == (
        "NOT_FOUND",
        "Could not find version 9 of model half",
    )


def test_status_ignores_labels(client: Client) -> None:
    assert [status.version for status in client.status(name="half", version_label="no")] == [3]


def test_version_label_selects_a_version(client: Client, manager: Manager) -> None:
    manager.set_version_labels("half", {"stable": 3})
    reply = client.predict(spec={"name": "half", "version_label": "stable"}, x=X)
    assert reply.model_spec.version.value == 3


def test_deadline_reaches_the_model(client: Client, loader: FakeLoader) -> None:
    client.predict(x=X)
    timeout_ms = loader.models[3].timeout_ms
    assert timeout_ms is not None
    # gRPC rounds a deadline up when it sends the deadline: one of 10 s by up to 0.1 s.
    assert 0 < timeout_ms <= 10_200


def test_call_without_a_deadline_has_no_timeout(client: Client, loader: FakeLoader) -> None:
    client.prediction.Predict(clients.predict_request(x=X))
    assert loader.models[3].timeout_ms is None


def test_outputs_are_tensor_content_when_the_setting_says_so(dataplane: DataPlane) -> None:
    with (
        clients.serving(dataplane, enable_serialization_as_tensor_content=True) as server,
        clients.connect(server.address) as client,
    ):
        output = client.predict(x=X).outputs["y"]
        assert np.frombuffer(output.tensor_content, np.float32).tolist() == [2.5, 3.0, 4.5]
        assert not output.float_val


def test_invalid_message_is_refused(client: Client) -> None:
    call = client.channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
    with pytest.raises(grpc.RpcError) as caught:
        call(b"\xff", timeout=10)
    text = "the request cannot be parsed as a tensorflow.serving.PredictRequest"
    assert clients.status_and_text(caught) == ("INVALID_ARGUMENT", text)


def test_call_without_a_message_is_refused(client: Client) -> None:
    call = client.channel.stream_unary("/tensorflow.serving.PredictionService/Predict")
    with pytest.raises(grpc.RpcError) as caught:
        call(iter(()), timeout=10)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_call_in_flight_is_answered_during_the_stop(
    client: Client, server: Any, loader: FakeLoader
) -> None:
    model = loader.models[3]
    model.gate.clear()
    with ThreadPoolExecutor() as pool:
        reply = pool.submit(client.predict, x=X)
        assert model.has_begun.wait(10)
        server.stop()
        model.gate.set()
        assert list(reply.result().outputs["y"].float_val) == [2.5, 3.0, 4.5]


def test_port_in_use_is_refused(dataplane: DataPlane, server: Any) -> None:
    from server.frontends.grpc.server import GrpcServer

    host, port = server.address.split(":")
    second = GrpcServer(dataplane, host, int(port), grace_seconds=0)
    with pytest.raises(RuntimeError):
        second.start()
    second.join()
